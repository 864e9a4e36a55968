package mobilityfirst

import (
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// firstLabel and lastLabel are the VLAN identifiers that are labels: the upper half of them, but for the
// one that is reserved (IEEE 802.1Q, 9.6). The lower half is left to VLANs.
const firstLabel, lastLabel = 2048, 4094

// maxLabels is how many there are.
const maxLabels = lastLabel - firstLabel + 1

// labels are those that are taken, by the Ethernet addresses that frames go from and to. Each pair has all
// of them: rules match both addresses.
type labels struct {
	of   map[[2]openflow.MAC]map[uint16]struct{}
	last uint16 // of any pair: none is taken again soon
}

// take takes a label; zero if all are taken.
func (l *labels) take(from, to openflow.MAC) uint16 {
	pair := [2]openflow.MAC{from, to}
	taken := l.of[pair]
	if taken == nil {
		taken = map[uint16]struct{}{}
		l.of[pair] = taken
	}
	if len(taken) == maxLabels {
		return 0
	}
	for {
		if l.last++; l.last < firstLabel || l.last > lastLabel {
			l.last = firstLabel
		}
		if _, is := taken[l.last]; !is {
			taken[l.last] = struct{}{}
			return l.last
		}
	}
}

// giveBack gives one back, if it is one.
func (l *labels) giveBack(from, to openflow.MAC, label uint16) {
	pair := [2]openflow.MAC{from, to}
	if delete(l.of[pair], label); len(l.of[pair]) == 0 {
		delete(l.of, pair)
	}
}

// anyLabel matches every label.
func anyLabel() openflow.OXM { return openflow.VLANVID(firstLabel).WithMask(vlanPresent | firstLabel) }

// vlanPresent is the bit of a VLAN field that says that there is a tag (OpenFlow 1.3.5, 7.2.3.8).
const vlanPresent = 0x1000

// ofLabel matches the frames of a path in one direction.
func ofLabel(in uint32, label uint16, from, to openflow.MAC) openflow.Match {
	return openflow.MustMatch(openflow.InPort(in), openflow.EthType(frame.EtherType), openflow.VLANVID(label), openflow.EthSrc(from), openflow.EthDst(to))
}
