package multipath

import (
	"hash/fnv"

	"github.com/sluice-net/sluice/openflow"
)

// groupNumbers assigns the same number to groups of a switch with the same content. The number
// follows from the content, so after a restart groups get the same numbers again.
type groupNumbers struct {
	byPorts  map[openflow.DatapathID]map[string]uint16
	used     map[openflow.DatapathID]map[uint16]bool // numbers in the plans of this round
	byNumber map[openflow.DatapathID]map[uint16]string
}

func newGroupNumbers() groupNumbers {
	return groupNumbers{
		byPorts:  map[openflow.DatapathID]map[string]uint16{},
		used:     map[openflow.DatapathID]map[uint16]bool{},
		byNumber: map[openflow.DatapathID]map[uint16]string{},
	}
}

// get returns the number of a group with these ports, whose buckets watch their ports if watch
// is true. It returns false if the switch has no number left.
func (x *groupNumbers) get(sw openflow.DatapathID, ports []uint32, watch bool) (uint16, bool) {
	if x.byPorts[sw] == nil {
		x.byPorts[sw], x.byNumber[sw] = map[string]uint16{}, map[uint16]string{}
	}
	if x.used[sw] == nil {
		x.used[sw] = map[uint16]bool{}
	}
	key := make([]byte, 0, 1+4*len(ports))
	if watch {
		key = append(key, 'w')
	}
	for _, p := range ports {
		key = append(key, byte(p>>24), byte(p>>16), byte(p>>8), byte(p))
	}
	n, known := x.byPorts[sw][string(key)]
	if !known {
		if len(x.byNumber[sw]) > 1<<16-1 {
			return 0, false
		}
		h := fnv.New32a()
		_, _ = h.Write(key)
		n = uint16(h.Sum32() ^ h.Sum32()>>16)
		for x.byNumber[sw][n] != "" {
			n++
		}
		x.byPorts[sw][string(key)], x.byNumber[sw][n] = n, string(key)
	}
	x.used[sw][n] = true
	return n, true
}

// freeUnused frees the numbers of groups that are in no plan of this round.
func (x *groupNumbers) freeUnused() {
	for sw, of := range x.byPorts {
		for key, n := range of {
			if !x.used[sw][n] {
				delete(of, key)
				delete(x.byNumber[sw], n)
			}
		}
		if len(of) == 0 {
			delete(x.byPorts, sw)
			delete(x.byNumber, sw)
		}
	}
	clear(x.used)
}
