package sos

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/kit/agents"
)

func near(name string, toClient, toServer float64) agents.Candidate {
	return agents.Candidate{Name: name, Costs: []float64{toClient, toServer}, Limit: 100}
}

func TestChoose(t *testing.T) {
	none := math.Inf(1)
	with := func(c agents.Candidate, f func(*agents.Candidate)) agents.Candidate { f(&c); return c }
	loaded := func(n int) func(*agents.Candidate) { return func(c *agents.Candidate) { c.Sessions = n } }
	cases := []struct {
		name string
		list []agents.Candidate
		x, y string // "" if agents must not carry the connection
		why  string
	}{
		{name: "one at each end", list: []agents.Candidate{near("x", 0, 75), near("y", 75, 0)}, x: "x", y: "y"},
		{name: "least loaded of a cluster", list: []agents.Candidate{
			with(near("x1", 0, 75), loaded(3)), with(near("x2", 0.5, 75), loaded(1)), with(near("x3", 0, 75), loaded(2)), near("y", 75, 0),
		}, x: "x2", y: "y"},
		{name: "nearer wins over less loaded", list: []agents.Candidate{with(near("x1", 0, 75), loaded(50)), near("x2", 20, 60), near("y", 75, 0)}, x: "x1", y: "y"},
		{name: "full is passed over", list: []agents.Candidate{with(near("x1", 0, 75), loaded(100)), near("x2", 20, 60), near("y", 75, 0)}, x: "x2", y: "y"},
		{name: "draining is passed over", list: []agents.Candidate{
			with(near("x1", 0, 75), func(c *agents.Candidate) { c.Unfit = "is draining" }), near("x2", 20, 60), near("y", 75, 0),
		}, x: "x2", y: "y"},
		{name: "islands", list: []agents.Candidate{near("x", 1, none), near("y", none, 1)}, x: "x", y: "y"},
		{name: "both ends at one site", list: []agents.Candidate{near("x1", 0, 0), near("x2", 0, 0), near("y", 75, 75)}, why: "equally near"},
		{name: "far site has none", list: []agents.Candidate{near("x1", 0, 75), near("x2", 0, 75)}, why: "equally near"},
		{name: "one agent", list: []agents.Candidate{near("x", 0, 75)}, why: "for the server"},
		{name: "no agent", why: "add agents"},
		{name: "reasons are told", list: []agents.Candidate{
			with(near("x", 0, 75), func(c *agents.Candidate) { c.Unfit = "is silent" }), with(near("y", 75, 0), loaded(100)),
		}, why: "x is silent"},
	}
	for _, c := range cases {
		x, y, err := Choose(c.list, 2, agents.BalanceSessions)
		if c.x == "" {
			if !errors.Is(err, ErrNoGain) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s: %v, want ErrNoGain with %q", c.name, err, c.why)
			}
			continue
		}
		if err != nil || c.list[x].Name != c.x || c.list[y].Name != c.y {
			t.Errorf("%s: %d %d %v, want %s and %s", c.name, x, y, err, c.x, c.y)
		}
	}
}

// TestChooseSpreads assigns 1,000 sessions to clusters before any of them
// reports its load.
func TestChooseSpreads(t *testing.T) {
	var list []agents.Candidate
	for i := range 4 {
		list = append(list, near(fmt.Sprintf("x%d", i), 0, 75), near(fmt.Sprintf("y%d", i), 75, 0))
	}
	for i := range list {
		list[i].Limit = 1000
	}
	for range 1000 {
		x, y, err := Choose(list, 2, agents.BalanceSessions)
		if err != nil {
			t.Fatal(err)
		}
		list[x].Sessions++
		list[y].Sessions++
	}
	for _, a := range list {
		if a.Sessions != 250 {
			t.Errorf("%s has %d sessions, want 250", a.Name, a.Sessions)
		}
	}
}
