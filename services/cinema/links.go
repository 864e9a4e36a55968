package cinema

import (
	"math"

	"github.com/sluice-net/sluice/internal/units"
)

// LinkInfo is what channels take of a link, as the API shows it.
type LinkInfo struct {
	Link     string     `json:"link" doc:"Port from which the link leads"`
	To       string     `json:"to" doc:"Port to which the link leads"`
	Channels int        `json:"channels" doc:"Channels that use the link"`
	Kept     units.Rate `json:"kept" doc:"Sum of their declared bit rates, which is reserved for them"`
	Most     units.Rate `json:"most" doc:"The most that channels may reserve of it; 0bit: its capacity is not known, and no channel is refused for it"`
}

// linkInfos lists the links between switches, each direction separately.
func (tm *treeManager) linkInfos() []LinkInfo {
	links := tm.Network.Topology().Links
	out := make([]LinkInfo, len(links))
	for i, x := range tm.reservations.Loads(links) {
		out[i] = LinkInfo{links[i].From.String(), links[i].To.String(), x.Channels, rateOf(x.Taken), rateOf(x.Most)}
	}
	return out
}

func rateOf(bits uint64) units.Rate { return units.Rate(min(bits, math.MaxInt64)) }
