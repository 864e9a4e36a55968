package handover

import (
	"slices"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// A restarted controller knows when it has found all earlier links, including those of switches
// that were not connected at the end.
func TestLinksAreRemembered(t *testing.T) {
	all, st := []openflow.DatapathID{1, 2, 3, 4, 5}, newStore(t)
	r := start(t, newWorld(treeLinks), st, nil)
	remembered := func(what string, links []network.Link) {
		t.Helper()
		r.NetworkChanged(network.Event{Kind: network.LinkUp})
		r.eventually(what, func() bool {
			s := knownLinks{store: st}
			return s.load(t.Context()) == nil && len(s.links) == len(links)
		})
	}
	remembered("all links", treeLinks)
	r.w.connect([]openflow.DatapathID{1, 2, 4, 5}, treeLinks)
	remembered("those of a switch that has left, too", treeLinks)
	r.w.connect(all, treeLinks[2:])
	remembered("no link that has gone between switches that are there", treeLinks[2:])
	r.stop()

	next := knownLinks{store: st}
	if err := next.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	elsewhere := slices.Clone(treeLinks)
	elsewhere[3].To = ref(4, 77)
	for what, c := range map[string]struct {
		switches []openflow.DatapathID
		links    []network.Link
		want     bool
	}{
		"as it was":              {all, treeLinks[2:], true},
		"one link more":          {all, treeLinks, true},
		"one is missing":         {all, treeLinks[3:], false},
		"one leads elsewhere":    {all, elsewhere, false},
		"a switch is missing":    {all[:4], treeLinks, false},
		"nothing is connected":   {nil, nil, false},
		"switches without links": {all, nil, false},
	} {
		w := newWorld(nil)
		w.connect(c.switches, c.links)
		if got := next.complete(w.Topology()); got != c.want {
			t.Errorf("%s: it is complete: %v", what, got)
		}
	}
	if (&knownLinks{}).complete(r.w.Topology()) {
		t.Error("a network that was never seen is complete")
	}
}
