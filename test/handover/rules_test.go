package handover

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// joinAll makes all phones join at once, by the radio of their number.
func joinAll(t *testing.T, radios []*radio, phones []*phone) {
	t.Helper()
	var group sync.WaitGroup
	limit := make(chan struct{}, 32)
	for i, p := range phones {
		group.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			n := i % len(radios)
			if err := p.join(t.Context(), radios[n], p.macs[n%len(p.macs)]); err != nil {
				t.Errorf("%s: %v", p.id, err)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func newPhones(from, n, interfaces int) []*phone {
	var all []*phone
	for i := range n {
		all = append(all, newPhone(from+i, interfaces))
	}
	return all
}

// TestRandomHandovers moves devices of both policies at random, many of them at once. Then it
// compares the switches' rules with the ledger's, and every device's place with where its packets
// arrive.
func TestRandomHandovers(t *testing.T) {
	t.Parallel()
	const seed, devices, moves, atOnce = 7, 40, 400, 20
	w, radios := crowd(t, lab.MobilityOptions{Cross: true})
	w.put("classes/saving", handover.ClassSpec{Policy: "saving", Trigger: "open"})
	w.put("classes/seamless", handover.ClassSpec{Policy: "seamless", Trigger: "open", Overlap: "50ms"})
	rnd := rand.New(rand.NewPCG(seed, seed))
	phones := newPhones(1, devices, 4)
	w.register("saving", phones[:devices/2]...)
	w.register("seamless", phones[devices/2:]...)
	joinAll(t, radios, phones)
	given := map[netip.Addr]bool{}
	at := make([]int, len(phones))
	for i, p := range phones {
		at[i] = i % len(radios)
		if given[p.ip] {
			t.Fatalf("%v was given twice", p.ip)
		}
		given[p.ip] = true
	}
	for range moves / atOnce {
		var group sync.WaitGroup
		for _, i := range rnd.Perm(len(phones))[:atOnce] {
			to := (at[i] + 1 + rnd.IntN(len(radios)-1)) % len(radios)
			at[i] = to
			group.Go(func() {
				if err := phones[i].move(t.Context(), radios[to], phones[i].macs[to]); err != nil {
					t.Errorf("%s to edge %d: %v", phones[i].id, to+1, err)
				}
			})
		}
		group.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	w.eventually("no device is served at two places", func() bool { return !w.anyBicast(phones) })
	rules := w.compareRules()
	w.leaked()
	for i, p := range phones {
		w.servedAt(radios, p.ip, place(at[i], p.macs[at[i]]))
	}
	t.Logf("%d handovers of %d devices (seed %d): %d rules in the switches, all in the ledger", moves, len(phones), seed, rules)
}

// anyBicast reports whether the rules for one of the phones' addresses end at two edge ports.
func (w *world) anyBicast(phones []*phone) bool {
	ends := map[string]int{}
	for _, f := range w.inSwitches() {
		if ip, ok := fieldOf(f.match, "nw_dst="); ok && f.priority == downPriority && contains(f.actions, "eth_dst") {
			ends[ip]++
		}
	}
	return slices.ContainsFunc(phones, func(p *phone) bool { return ends[p.ip.String()] > 1 })
}

// TestWrittenSwitches counts the switches that a handover writes: those between
// the join and the edges, no matter how many other devices there are.
func TestWrittenSwitches(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	one := newPhone(1, 4)
	w.register("open", one)
	if err := one.join(t.Context(), radios[0], one.macs[0]); err != nil {
		t.Fatal(err)
	}
	// The tree has root, core1 with edge1 and edge2, core2 with edge3 and edge4. A
	// move to the sibling writes both edges and their core; one to the other side
	// both edges, both cores and the root.
	steps := []struct{ to, switches int }{{1, 3}, {0, 3}, {2, 5}, {3, 3}, {0, 5}}
	counts := map[int][]handover.Changes{}
	for _, others := range []int{0, 12} {
		if others > 0 {
			crowd := newPhones(100, others, 4)
			w.register("open", crowd...)
			joinAll(t, radios, crowd)
		}
		for _, s := range steps {
			before := w.rulesBySwitch()
			if err := one.move(t.Context(), radios[s.to], one.macs[s.to]); err != nil {
				t.Fatal(err)
			}
			w.eventually("the handover is over", func() bool { return w.done(one.id, radios[s.to]) })
			r := w.handovers(one.id, 1)[0]
			touched := differing(before, w.rulesBySwitch())
			counts[others] = append(counts[others], r.Changes)
			if r.Changes.Switches != s.switches || len(touched) != s.switches {
				t.Errorf("with %d others, to edge %d: the record says %d switches, their rules differ at %v; want %d",
					others, s.to+1, r.Changes.Switches, touched, s.switches)
			}
		}
	}
	if !slices.Equal(counts[0], counts[12]) {
		t.Errorf("alone it changed %+v, with 12 others %+v", counts[0], counts[12])
	}
	t.Logf("switches and rules for each move: %+v", counts[0])
}

// rulesBySwitch returns the switches' rules for devices, without counters and ages.
func (w *world) rulesBySwitch() map[string][]string {
	w.t.Helper()
	all := map[string][]string{}
	for _, x := range w.inSwitches() {
		if x.ofDevice() {
			all[x.sw] = append(all[x.sw], fmt.Sprint(x))
		}
	}
	for _, list := range all {
		slices.Sort(list)
	}
	return all
}

// differing returns the switches whose rules differ.
func differing(a, b map[string][]string) []string {
	names := map[string]bool{}
	for sw := range a {
		names[sw] = !slices.Equal(a[sw], b[sw])
	}
	for sw := range b {
		names[sw] = !slices.Equal(a[sw], b[sw])
	}
	maps.DeleteFunc(names, func(_ string, differ bool) bool { return !differ })
	return slices.Sorted(maps.Keys(names))
}
