package reserve

import (
	"slices"

	"github.com/sluice-net/sluice/network/topology"
)

// ReversePath returns a path in the opposite direction.
func ReversePath(way []topology.Hop) []topology.Hop {
	back := slices.Clone(way)
	slices.Reverse(back)
	for i, h := range back {
		back[i].In, back[i].Out = h.Out, h.In
	}
	return back
}
