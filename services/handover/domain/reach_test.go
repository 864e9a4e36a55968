package domain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// reach follows the packets of a device from its home and returns the domains in which they reach
// an edge port.
func reach(domains []*testDomain, home *testDomain, id string) []string {
	byName := map[string]*testDomain{}
	for _, d := range domains {
		byName[d.name] = d
	}
	var out []string
	var follow func(d *testDomain, depth int)
	follow = func(d *testDomain, depth int) {
		if depth > 2*len(domains) {
			out = append(out, "loop")
			return
		}
		local := Visitor{Home: home.name, Device: id}.LocalID(d.name)
		for _, p := range d.host.placesOf(local) {
			if p == edge {
				out = append(out, d.name)
			} else {
				follow(byName[p], depth+1)
			}
		}
	}
	follow(home, 0)
	slices.Sort(out)
	return out
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	timer := time.NewTimer(waitLimit)
	defer timer.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-timer.C:
			t.Fatalf("%s: still not so after %v", what, waitLimit)
		}
	}
}

// settles waits until the packets of the device arrive in one domain only and all outboxes are
// empty.
func settles(t testing.TB, domains []*testDomain, home *testDomain, id, in string) {
	t.Helper()
	last := ""
	ok := func() bool {
		last = fmt.Sprint(reach(domains, home, id))
		for _, d := range domains {
			for _, r := range d.service().records.roaming() {
				if r.Home == home.name && strings.HasPrefix(r.ID, id) && (r.Outbox > 0 || r.Stage != "") {
					last += fmt.Sprintf(" %s: %+v", d.name, r)
					return false
				}
			}
		}
		return last == fmt.Sprint([]string{in})
	}
	timer := time.NewTimer(waitLimit)
	defer timer.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-timer.C:
			t.Fatalf("packets of %s do not settle in %s: %s", id, in, last)
		}
	}
}
