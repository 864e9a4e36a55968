package tree

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// ErrNoWay says that no links lead there, with room or without.
var ErrNoWay = errors.New("no links lead there")

// Refusal says which link lacks room for a channel. It is the first on the way that lacks
// room at the fewest links.
type Refusal struct {
	Link Edge
	// Rate is what was wanted, Left what channels may still send, All what they may
	// together, in bit/s.
	Rate, Left, All uint64
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("link %v: %s wanted, %s of the %s for channels are left",
		r.Link.From, units.FormatRate(float64(r.Rate)), units.FormatRate(float64(r.Left)), units.FormatRate(float64(r.All)))
}

// lacking is what a link without room costs in the search for why: more than any way that
// has room.
const lacking = 1 << 20

// why says why a switch is not reached.
func (g *growth) why(d openflow.DatapathID) error {
	if !g.top.Has(d) {
		return fmt.Errorf("switch %v: %w", d, network.ErrSwitchDown)
	}
	g.weigh(func(network.Link) float64 { return lacking })
	_, way := g.nearest([]openflow.DatapathID{d})
	for _, e := range way {
		if left, all := g.room(e.From); all != 0 && left < g.want.Rate {
			return &Refusal{e, g.want.Rate, left, all}
		}
	}
	return fmt.Errorf("from %v to switch %v: %w", g.want.Root, d, ErrNoWay)
}
