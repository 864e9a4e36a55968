package integration

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/race"
	"github.com/sluice-net/sluice/lab"
)

// TestThousandDevices attaches 1,000 devices by DHCP over real switches, moves 100
// of them a second for 10 s, and wants an answer to every single message.
func TestThousandDevices(t *testing.T) {
	if race.Enabled {
		t.Skip("a thousand devices are for the program as it is used")
	}
	const devices, perSecond, seconds = 1000, 100, 10
	w, radios := crowd(t, lab.MobilityOptions{})
	phones := newPhones(1, devices, 4)
	w.register("open", phones...)
	start := time.Now()
	joinAll(t, radios, phones)
	t.Logf("%d devices have joined within %v", devices, time.Since(start).Round(time.Millisecond))
	seen := map[string]bool{}
	for _, p := range phones {
		if seen[p.ip.String()] {
			t.Fatalf("%v was given twice", p.ip)
		}
		seen[p.ip.String()] = true
	}

	rnd := rand.New(rand.NewPCG(3, 3))
	order := rnd.Perm(devices)
	at := make([]int, devices)
	took := make([]time.Duration, perSecond*seconds)
	var group sync.WaitGroup
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	start = time.Now()
	for n := range took {
		<-tick.C
		i := order[n%devices]
		at[i] = (i%len(radios) + 1 + rnd.IntN(len(radios)-1)) % len(radios)
		group.Go(func() {
			began := time.Now()
			if err := phones[i].move(t.Context(), radios[at[i]], phones[i].macs[at[i]]); err != nil {
				t.Errorf("%s: %v", phones[i].id, err)
			}
			took[n] = time.Since(began)
		})
	}
	group.Wait()
	elapsed := time.Since(start)
	slices.Sort(took)
	t.Logf("%d migrations within %v: request to answer p50 %v, p90 %v, p99 %v, longest %v", len(took), elapsed.Round(time.Millisecond),
		took[len(took)/2], took[len(took)*9/10], took[len(took)*99/100], took[len(took)-1])
	rules := w.compareRules()
	for _, i := range order[:50] {
		w.servedAt(radios, phones[i].ip, place(at[i], phones[i].macs[at[i]]))
	}
	t.Logf("%d rules in the switches, all in the ledger", rules)
}
