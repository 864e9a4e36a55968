package route

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/openflow"
)

// Inward writes every switch of a plan once, and none before those to which it sends packets for
// the device. The exception is a branch to a second place that leads through switches on the path
// of other borders' packets: these send to each other.
func TestInward(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := anyTopology(t)
		borders := anyBorders(t, top)
		w := Want{IP: device, Home: home, Borders: borders, Places: []Place{anyEdge(t, top)}}
		if rapid.Bool().Draw(t, "two places") {
			w.Places = append(w.Places, anyEdge(t, top))
		}
		p, err := NewPlan(top, w)
		unlessUnreachable(t, err)
		if err != nil {
			return
		}
		at := map[openflow.DatapathID]int{}
		for i, wave := range Inward(p) {
			if _, twice := at[wave[0]]; len(wave) != 1 || twice {
				t.Fatalf("wave %d is %v", i, wave)
			}
			at[wave[0]] = i
		}
		for i := range p.entries {
			e := &p.entries[i]
			here, written := at[e.sw]
			if !written {
				t.Fatalf("switch %v is never written", e.sw)
			}
			for _, o := range e.outs[:e.n] {
				mutual := p.Bicast() && len(borders) > 1
				if !e.up && !o.to.IsZero() && !mutual && at[o.to.Switch] >= here {
					t.Fatalf("switch %v is written before %v, to which it sends", e.sw, o.to.Switch)
				}
			}
		}
	})
}
