package domain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRandomTravels lets a device travel between three domains, announced or not, while messages
// get lost or arrive twice and controllers are restarted. Whatever happens it never gets another
// address than its own. Once the network is quiet again and the device has asked at its place, its
// packets arrive there, and only there.
func TestRandomTravels(t *testing.T) {
	t.Parallel()
	timing := quick
	timing.Move = 400 * time.Millisecond
	timing.Forget = time.Millisecond
	ds := newDomains(t, 3, timing, everybody)
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		travel(t, rt, ds, number)
	})
}

func travel(t *testing.T, rt *rapid.T, ds []*testDomain, number int) {
	a := ds[0]
	mac, id := a.device(number, nil)
	want := a.addressOf(id)
	local := func(d *testDomain) string { return Visitor{Home: a.name, Device: id}.LocalID(d.name) }
	ask := func(d *testDomain, waitLimit time.Duration) bool {
		ip, err := d.dhcp(mac, sign(mac, "secret"), waitLimit)
		if err == nil && ip != want {
			rt.Fatalf("%s got %v in %s, its own is %v", id, ip, d.name, want)
		}
		return err == nil
	}
	steps := rapid.IntRange(1, 7).Draw(rt, "steps")
	for range steps {
		d := ds[rapid.IntRange(0, 2).Draw(rt, "domain")]
		switch rapid.SampledFrom([]string{"announce", "ask", "ask", "lose", "double", "heal", "restart"}).Draw(rt, "step") {
		case "announce":
			to := ds[rapid.IntRange(0, 2).Draw(rt, "to")]
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = d.service().Origin.Announce(ctx, local(d), to.name, at(to)) // may fail: most domains do not have the device
			cancel()
		case "ask":
			ask(d, 300*time.Millisecond)
		case "lose":
			what := rapid.SampledFrom([]fate{lost, replyLost}).Draw(rt, "fate")
			d.setFate(func(Kind, string) fate { return what })
		case "double":
			d.setFate(func(Kind, string) fate { return doubled })
		case "heal":
			d.setFate(nil)
		case "restart":
			d.shut()
			d.start()
		}
	}
	for _, d := range ds {
		d.setFate(nil)
	}
	last := ds[rapid.IntRange(0, 2).Draw(rt, "last")]
	comesToRest(rt, ds, id, func() bool { return ask(last, 300*time.Millisecond) }, last, local(last), want)
}

// comesToRest lets the device ask at its place, as clients do that get no answer, until it is
// served and its packets arrive only there.
func comesToRest(rt *rapid.T, ds []*testDomain, id string, ask func() bool, last *testDomain, local string, want netip.Addr) {
	end := time.Now().Add(waitLimit)
	state := ""
	for time.Now().Before(end) {
		if !ask() {
			continue
		}
		// The state is stable; a while later all is quiet.
		if quietIn(ds, id, last, &state) {
			if k, ok := last.host.Device(local); !ok || k.IP != want {
				rt.Fatalf("%s: %+v, %v", id, k, ok)
			}
			return
		}
	}
	rt.Fatalf("%s does not come to rest in %s: %s", id, last.name, state)
}

func quietIn(ds []*testDomain, id string, last *testDomain, state *string) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 200 {
		<-tick.C
		places := reach(ds, ds[0], id)
		*state = fmt.Sprint(places)
		busy := false
		for _, d := range ds {
			for _, r := range d.service().records.roaming() {
				if r.ID == id || r.ID == id+"@a" {
					*state += fmt.Sprintf("\n%s: %+v", d.name, r)
					busy = busy || r.Outbox > 0 || r.Stage != ""
				}
			}
		}
		if !busy && slices.Equal(places, []string{last.name}) {
			return true
		}
	}
	return false
}
