package cinema

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

// TestLinkCut cuts a link of the tree repeatedly. Each time the packets to all viewers continue
// on the other path around the ring.
func TestLinkCut(t *testing.T) {
	w := ownEgress(t, "cinema-cut")
	w.lightChannels(1, "in1")
	gateway := newRawGateway(w, "out1") // across the ring
	var all []*rawViewer
	for range 10 {
		all = append(all, gateway.join("c1"))
	}
	w.allGot(all, 20)
	for range 4 {
		link := w.carrying("c1")
		w.must(w.lab.SetLink(t.Context(), link, false))
		w.must(testbed.Poll(t.Context(), "another way", func() error {
			if now := w.carrying("c1"); now == link || now == "" {
				return fmt.Errorf("the channel is led over %q", now)
			}
			return nil
		}))
		w.allGot(all, 50)
		w.must(w.lab.SetLink(t.Context(), link, true))
		w.linked()
	}
	for _, v := range all {
		if s := v.sum(); s.doubled > 0 {
			t.Errorf("a viewer got %d of %d packets twice", s.doubled, s.packets)
		}
		v.leave()
	}
	w.nothingLeft()
}

// carrying returns a link that carries a channel, or nothing.
func (w *world) carrying(channel string) string {
	w.t.Helper()
	var trees []cinema.TreeInfo
	w.must(w.Get(w.t.Context(), "/api/v1/cinema/trees", &trees))
	for _, tree := range trees {
		if tree.Channel != channel {
			continue
		}
		for _, l := range w.betweenSwitches() {
			for _, at := range []string{l.A.Node, l.B.Node} {
				port, err := w.lab.Switch(at).Port(l.Name)
				w.must(err)
				if slices.Contains(tree.Links, fmt.Sprintf("%016x/%d", w.lab.Switch(at).DPID(), port)) {
					return l.Name
				}
			}
		}
	}
	return ""
}
