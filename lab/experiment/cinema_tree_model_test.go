package experiment

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

func TestJoinModels(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		act             string
		hops            int
		cinema, classic time.Duration
	}{
		{joinInitial, 3, 17 * ms, 30 * ms},
		{joinRemote, 2, 10 * ms, 20 * ms},
		{joinLocal, 0, 2 * ms, 0},
		{zapRemote, 3, 17 * ms, 30 * ms},
		{leaveLast, 0, 2 * ms, 0},
	} {
		if got := joinModel(c.act, c.hops, 2*ms, 5*ms); got != c.cinema {
			t.Errorf("%s: %v, want %v", c.act, got, c.cinema)
		}
		if got := multicastModel(c.act, 2, 1, 5*ms); got != c.classic {
			t.Errorf("%s by multicast: %v, want %v", c.act, got, c.classic)
		}
	}
	if got := channelAt(2, 20*ms, 5*ms); got != 30*ms {
		t.Errorf("behind slow control connections: %v, want 30ms", got)
	}
}

// TestSpanning checks that a spanning tree reaches each switch once.
func TestSpanning(t *testing.T) {
	top, _ := treeNetwork("x")
	links := 0
	for _, onward := range spanning(top, "s1") {
		links += len(onward)
	}
	if want := len(top.Switches) - 1; links != want {
		t.Errorf("%d links, want %d", links, want)
	}
}

// TestRouted checks that each router of a routed network has a route to every subnet, by a router
// at one of its own links.
func TestRouted(t *testing.T) {
	n := routed("x", lab.Ring("x", 5, delayline.Params{}))
	for _, r := range n.routers {
		own := map[string]bool{}
		for _, s := range n.subnets {
			if _, here := s.at[r]; here {
				own[s.prefix.String()] = true
			}
		}
		routes := n.routes(r)
		if len(routes)+len(own) != len(n.subnets) {
			t.Errorf("%s has %d routes and %d subnets of its own, of %d", r, len(routes), len(own), len(n.subnets))
		}
		for _, x := range routes {
			if !slices.ContainsFunc(n.subnets, func(s subnet) bool { return own[s.prefix.String()] && s.prefix.Contains(x.Via) }) {
				t.Errorf("%s goes to %v by %v, which it does not reach", r, x.To, x.Via)
			}
		}
	}
}
