package latency

import (
	"slices"

	"github.com/sluice-net/sluice/network/topology"
)

// movingWay is the way of a flow of which one end is a host that moves: between the border
// that its packets pass and where it is, where the host's own rules lead them. That is all
// that there is to choose, so the class has its queues there. It is false for flows of
// which no end moves, or both do.
func (s *Service) movingWay(f *Flow) ([]topology.Hop, bool) {
	src, from := s.net.Anchored(f.Src.IP)
	dst, to := s.net.Anchored(f.Dst.IP)
	switch {
	case to && !from && len(dst.Way) > 0:
		return dst.Way, true
	case from && !to && len(src.Way) > 0:
		up := slices.Clone(src.Way)
		slices.Reverse(up)
		for i, h := range up {
			up[i].In, up[i].Out = h.Out, h.In
		}
		return up, true
	}
	return nil, false
}
