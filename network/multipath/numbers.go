package multipath

import (
	"hash/fnv"

	"github.com/sluice-net/sluice/openflow"
)

// numbers gives groups of a switch that are alike one number, which follows from what is in them:
// after a restart they have the same ones again.
type numbers struct {
	of   map[openflow.DatapathID]map[string]uint16
	used map[openflow.DatapathID]map[uint16]bool // by the plans of this round
	had  map[openflow.DatapathID]map[uint16]string
}

func newNumbers() numbers {
	return numbers{
		of:   map[openflow.DatapathID]map[string]uint16{},
		used: map[openflow.DatapathID]map[uint16]bool{},
		had:  map[openflow.DatapathID]map[uint16]string{},
	}
}

// get is the number of a group with these ports, which its buckets watch or do not; false if a
// switch has no number left.
func (x *numbers) get(sw openflow.DatapathID, ports []uint32, watch bool) (uint16, bool) {
	if x.of[sw] == nil {
		x.of[sw], x.had[sw] = map[string]uint16{}, map[uint16]string{}
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
	n, known := x.of[sw][string(key)]
	if !known {
		if len(x.had[sw]) > 1<<16-1 {
			return 0, false
		}
		h := fnv.New32a()
		_, _ = h.Write(key)
		n = uint16(h.Sum32() ^ h.Sum32()>>16)
		for x.had[sw][n] != "" {
			n++
		}
		x.of[sw][string(key)], x.had[sw][n] = n, string(key)
	}
	x.used[sw][n] = true
	return n, true
}

// forget frees the numbers of groups that no plan of this round has.
func (x *numbers) forget() {
	for sw, of := range x.of {
		for key, n := range of {
			if !x.used[sw][n] {
				delete(of, key)
				delete(x.had[sw], n)
			}
		}
		if len(of) == 0 {
			delete(x.of, sw)
			delete(x.had, sw)
		}
	}
	clear(x.used)
}
