package experiment

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// TestModelWays checks that hash and service choose paths from host to host, link by link, in trees
// of several sizes, and that the service takes one that is longer by two links if the others are
// full.
func TestModelWays(t *testing.T) {
	for _, k := range []int{4, 6, 8} {
		tree := newModelTree(k)
		top, numbers := tree.topology(modelLink)
		from := map[int]reserve.Link{}
		for at, l := range numbers {
			if _, twice := from[l]; twice || l < 0 || l >= 4*tree.tier() {
				t.Fatalf("k = %d: link %d from %v is there twice, or not at all", k, l, at)
			}
			from[l] = at
		}
		if len(from) != 4*tree.tier() || len(top.Links) != len(from) || len(top.Switches) != 5*k*k/4 {
			t.Fatalf("k = %d: %d links of %d, %d switches", k, len(from), 4*tree.tier(), len(top.Switches))
		}
		rng := rand.New(rand.NewPCG(1, 2))
		flows := matrix1.flows(rng, k, 2*tree.hosts(), modelPace)
		r := newModelRouter(tree, modelWay{subflows: 3, placed: true}, flows, 1)
		for i, f := range flows {
			var first int
			for number := range 3 {
				links := r.Route(i, number, f.start.Seconds())
				if number == 0 {
					first = len(links)
				}
				if number > 0 && len(links) != first && len(links) != first+2 || links[0] != tree.send(f.from) || links[len(links)-1] != tree.receive(f.to) {
					t.Fatalf("k = %d: subflow %d from %d to %d takes links %v", k, number, f.from, f.to, links)
				}
				at := tree.at(f.from).Switch
				for _, l := range links[1 : len(links)-1] {
					link, ok := top.LinkFrom(from[l])
					if !ok || link.From.Switch != at {
						t.Fatalf("k = %d: link %d from %v does not begin at %v", k, l, from[l], at)
					}
					at = link.To.Switch
				}
				if at != tree.at(f.to).Switch {
					t.Fatalf("k = %d: the way to %d ends at %v", k, f.to, at)
				}
			}
		}
		if !top.IsEdge(tree.at(0)) || !top.IsEdge(topology.PortRef{Switch: tree.edge(0), Port: uint32(k)}) {
			t.Errorf("k = %d: hosts are at ports of links", k)
		}
	}
}
