package tree

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// ErrNoPath says that no links lead to a switch, with or without room.
var ErrNoPath = errors.New("no links lead there")

// Refusal is the error for a switch that a channel cannot reach because links lack room. Link is the
// first link without room on the path that has the fewest such links.
type Refusal struct {
	Link Edge
	// Rate is the requested bit rate, Left the bit rate that channels may still reserve of the
	// link, and All the bit rate that they may reserve together, in bit/s.
	Rate, Left, All uint64
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("link %v: %s wanted, %s of the %s for channels are left",
		r.Link.From, units.FormatRate(float64(r.Rate)), units.FormatRate(float64(r.Left)), units.FormatRate(float64(r.All)))
}

// fullLinkCost is the cost of a link without room in the search for the reason of a refusal. It
// exceeds that of any path with room.
const fullLinkCost = 1 << 20

// refusalReason returns why a switch cannot be reached.
func (g *grower) refusalReason(d openflow.DatapathID) error {
	if !g.top.Has(d) {
		return fmt.Errorf("switch %v: %w", d, network.ErrSwitchDown)
	}
	g.setWeights(func(network.Link) float64 { return fullLinkCost })
	_, path := g.nearest([]openflow.DatapathID{d})
	for _, e := range path {
		if left, all := g.room(e.From); all != 0 && left < g.want.Rate {
			return &Refusal{e, g.want.Rate, left, all}
		}
	}
	return fmt.Errorf("from %v to switch %v: %w", g.want.Root, d, ErrNoPath)
}
