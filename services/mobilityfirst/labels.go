package mobilityfirst

import (
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// firstLabel and lastLabel bound the VLAN identifiers that are used as labels: the upper half,
// without the reserved one (IEEE 802.1Q, 9.6). The lower half is left to VLANs.
const firstLabel, lastLabel = 2048, 4094

// maxLabels is the number of labels.
const maxLabels = lastLabel - firstLabel + 1

// labels allocates labels for pairs of Ethernet addresses that frames go from and to. Each pair can
// use all labels, because rules match both addresses.
type labels struct {
	taken map[[2]openflow.MAC]map[uint16]struct{}
	last  uint16 // the last one allocated to any pair, so that no label is soon used again
}

// allocate returns an unused label, or zero if all are in use.
func (l *labels) allocate(from, to openflow.MAC) uint16 {
	pair := [2]openflow.MAC{from, to}
	taken := l.taken[pair]
	if taken == nil {
		taken = map[uint16]struct{}{}
		l.taken[pair] = taken
	}
	if len(taken) == maxLabels {
		return 0
	}
	for {
		if l.last++; l.last < firstLabel || l.last > lastLabel {
			l.last = firstLabel
		}
		if _, ok := taken[l.last]; !ok {
			taken[l.last] = struct{}{}
			return l.last
		}
	}
}

// release releases a label. It ignores one that is not allocated.
func (l *labels) release(from, to openflow.MAC, label uint16) {
	pair := [2]openflow.MAC{from, to}
	if delete(l.taken[pair], label); len(l.taken[pair]) == 0 {
		delete(l.taken, pair)
	}
}

// anyLabel matches every label.
func anyLabel() openflow.OXM { return openflow.VLANVID(firstLabel).WithMask(vlanPresent | firstLabel) }

// vlanPresent is the bit of a VLAN field that is set if there is a tag (OpenFlow 1.3.5, 7.2.3.8).
const vlanPresent = 0x1000

// labelMatch matches the frames of a path in one direction.
func labelMatch(in uint32, label uint16, from, to openflow.MAC) openflow.Match {
	return openflow.MustMatch(openflow.InPort(in), openflow.EthType(frame.EtherType), openflow.VLANVID(label), openflow.EthSrc(from), openflow.EthDst(to))
}
