package handover

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// at checks that a device is reachable at one place, in both directions, and nowhere else.
func (r *rig) at(ip netip.Addr, home openflow.MAC, at network.PortRef, src openflow.MAC) {
	r.t.Helper()
	if got, want := r.down(ip, home), []arrival{{at, routerMAC, src}}; !slices.Equal(got, want) {
		r.t.Errorf("to the device: %v, want %v", got, want)
	}
	if got, want := r.up(at, src, ip), []arrival{{uplink, home, routerMAC}}; !slices.Equal(got, want) {
		r.t.Errorf("from the device: %v, want %v", got, want)
	}
}

func TestAttachAndMoveSaving(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	r.at(ip, mac1, edge3, mac1)
	if l, _ := r.registry.Lease("car"); l.IP != ip || l.Attachment == nil || l.Attachment.At != edge3 {
		t.Errorf("lease %+v", l)
	}
	// A move does not change the rules of other devices.
	other := r.attach(edge5, mac3)
	r.idle()
	r.w.touched()

	if got := r.move(edge4, mac2, ip); got != ip {
		t.Fatalf("moved, and got %v instead of %v", got, ip)
	}
	r.idle()
	r.at(ip, mac1, edge4, mac2)
	r.at(other, mac3, edge5, mac3)
	if got := r.up(edge3, mac1, ip); len(got) != 0 {
		t.Errorf("the old place still takes packets: %v", got)
	}
	// The join is switch 2: no switch above it is written to.
	if got := r.w.touched(); !slices.Equal(got, []openflow.DatapathID{2, 3, 4}) {
		t.Errorf("written to %v, want the switches from the join to both edges", got)
	}
	rec := r.api.records(handoversInput{Device: "car", Kind: "move"})
	if len(rec) != 1 || rec[0].Result != ResultDone || rec[0].Join != openflow.DatapathID(2).String() || rec[0].Changes.Switches != 3 ||
		rec[0].Parts.Tf <= 0 || rec[0].Parts.Trigger <= 0 || rec[0].From.Port.PortRef != edge3 || rec[0].To.Port.PortRef != edge4 {
		t.Errorf("record %+v", rec)
	}
}

func TestSeamless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		mac4 := mac("02:00:00:00:00:04")
		ip := r.attach(edge3, mac3)
		r.idle()
		if got := r.move(edge4, mac4, ip); got != ip {
			t.Fatalf("got %v", got)
		}
		both := []arrival{{edge3, routerMAC, mac3}, {edge4, routerMAC, mac4}}
		got := r.down(ip, mac3)
		slices.SortFunc(got, func(a, b arrival) int { return a.At.Compare(b.At) })
		if !slices.Equal(got, both) {
			t.Errorf("while both places are served: %v", got)
		}
		for _, x := range both {
			if got := r.up(x.At, x.Dst, ip); !slices.Equal(got, []arrival{{uplink, mac3, routerMAC}}) {
				t.Errorf("from %v: %v", x.At, got)
			}
		}
		r.eventually("the overlap to end", func() bool { return len(r.down(ip, mac3)) == 1 })
		r.idle()
		r.at(ip, mac3, edge4, mac4)
		r.eventually("the old place to take no more packets", func() bool { return len(r.up(edge3, mac3, ip)) == 0 })
		r.w.mu.Lock()
		if len(r.w.mixed) > 0 {
			t.Errorf("rules were deleted together with what replaces them: %v", r.w.mixed)
		}
		r.w.mu.Unlock()
		rec := r.api.records(handoversInput{Device: "phone", Kind: "move"})
		if len(rec) != 1 || !rec[0].Bicast || rec[0].Policy != "seamless" || rec[0].Fallback != "" {
			t.Errorf("record %+v", rec)
		}
	})
}

// thirdRadio adds a third radio to the phone, and sets a long overlap.
func thirdRadio(m openflow.MAC) func(*Settings) {
	return func(x *Settings) {
		for name := range x.Classes {
			alter(x.Classes, name, func(c *registry.Class) { c.Overlap = 10 * time.Second })
		}
		alter(x.Devices, "phone", func(d *registry.Device) { d.MACs = append(d.MACs, m) })
	}
}

// Packets in flight on a path that the device has just left still arrive, even if the device has
// moved again since: to another place, or back.
func TestUnderWayThroughTwoMoves(t *testing.T) {
	mac4, mac5 := mac("02:00:00:00:00:04"), mac("02:00:00:00:00:05")
	for name, next := range map[string]struct {
		at  network.PortRef
		mac openflow.MAC
	}{"on": {edge5, mac5}, "back": {edge3, mac3}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, thirdRadio(mac5))
			ip := r.attach(edge3, mac3)
			for _, m := range []struct {
				at  network.PortRef
				mac openflow.MAC
			}{{edge4, mac4}, next} {
				if r.move(m.at, m.mac, ip) != ip {
					t.Fatal("a move was not acknowledged")
				}
				r.idle()
			}
			for _, at := range []network.PortRef{ref(2, 11), ref(3, 12)} {
				down := r.downAt(at, ip, mac3)
				if len(down) == 0 {
					t.Errorf("what is under way to the device at %v is dropped", at)
				}
			}
			for _, at := range []network.PortRef{ref(2, 12), ref(1, 11)} {
				up := r.up(at, mac3, ip)
				if !slices.Equal(up, []arrival{{uplink, mac3, routerMAC}}) {
					t.Errorf("what is under way from the device at %v comes out at %v", at, up)
				}
			}
		})
	}
}

// A switch below the join has the rules by which the device will be served at its new place alone
// as soon as it has moved, and no others for its packets. When the join changes to them, the
// switch has used them for long.
func TestRulesOfTheNewPlaceComeFirst(t *testing.T) {
	mac4, mac5 := mac("02:00:00:00:00:04"), mac("02:00:00:00:00:05")
	r := newRig(t, thirdRadio(mac5))
	ip := r.attach(edge3, mac3)
	for _, m := range []struct {
		at  network.PortRef
		mac openflow.MAC
	}{{edge5, mac5}, {edge4, mac4}} {
		if r.move(m.at, m.mac, ip) != ip {
			t.Fatal("a move was not acknowledged")
		}
		r.idle()
	}
	if got, want := r.downAt(ref(2, 11), ip, mac3), []arrival{{edge4, routerMAC, mac4}}; !slices.Equal(got, want) {
		t.Errorf("packets to the device that come to a switch below the join come out at %v, want %v", got, want)
	}
}

func TestReleaseAndExpiry(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	m, err := dhcpv4.New(dhcpv4.WithHwAddr(mac1[:]), dhcpv4.WithMessageType(dhcpv4.MessageTypeRelease), dhcpv4.WithClientIP(ip.AsSlice()))
	if err != nil {
		t.Fatal(err)
	}
	r.send(edge3, mac1, m)
	r.eventually("the rules to go", func() bool { return len(r.w.kept()) == 0 })
	if got := r.attach(edge3, mac1); got != ip {
		t.Errorf("back with %v, had %v", got, ip)
	}
}

func TestRefusedRulesMoveNothing(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	r.w.mu.Lock()
	r.w.refuse = func(string) error { return network.ErrRefused }
	r.w.mu.Unlock()
	r.send(edge4, mac2, request(mac2, ip))
	r.eventually("a failed record", func() bool { return len(r.api.records(handoversInput{Result: ResultFailed})) == 1 })
	r.idle()
	r.at(ip, mac1, edge3, mac1)
	if got := r.answer(edge4, dhcpv4.MessageTypeAck, 50*time.Millisecond); got.IsValid() {
		t.Error("acknowledged, although the device is not reachable there")
	}
	if l, _ := r.registry.Lease("car"); l.Attachment.At != edge3 {
		t.Errorf("the lease says that it is at %v", l.Attachment.At)
	}
	r.w.mu.Lock()
	r.w.refuse = nil
	r.w.mu.Unlock()
	if got := r.move(edge4, mac2, ip); got != ip {
		t.Errorf("then got %v", got)
	}
	r.idle()
	r.at(ip, mac1, edge4, mac2)
}

// From the moment at which a device's packets are accepted at a place until it moves on,
// acceptsFrom reports it, even while its rules are being written. Otherwise a packet that a switch
// sends up because of an outdated decision would be dropped by the controller.
func TestLeadsWithoutAGap(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	for i := range 200 {
		r.idle()
		here, m := edge4, mac2
		if i%2 == 1 {
			here, m = edge3, mac1
		}
		var looking sync.WaitGroup
		var stop atomic.Bool
		gap := false
		looking.Go(func() {
			for led := false; !gap && !stop.Load(); {
				leads := r.guards.acceptsFrom(here, ip)
				led, gap = led || leads, led && !leads
			}
		})
		if r.move(here, m, ip) != ip {
			t.Fatal("a move was not acknowledged")
		}
		r.idle()
		stop.Store(true)
		looking.Wait()
		if gap {
			t.Fatalf("move %d: for a moment the device counted as elsewhere", i)
		}
	}
}

// A device that goes back and forth ends up where it asked last, and leaves no state behind.
func TestPingPong(t *testing.T) {
	for name, m := range map[string][2]openflow.MAC{"saving": {mac1, mac2}, "seamless": {mac3, mac("02:00:00:00:00:04")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				ip := r.attach(edge3, m[0])
				for range 25 {
					if r.move(edge4, m[1], ip) != ip || r.move(edge3, m[0], ip) != ip {
						t.Fatal("a move was not acknowledged")
					}
				}
				r.eventually("one place to be served", func() bool { return len(r.down(ip, m[0])) == 1 })
				r.idle()
				r.at(ip, m[0], edge3, m[0])
				r.eventually("the other place to take no more packets", func() bool { return len(r.up(edge4, m[1], ip)) == 0 })
				if failed := r.api.records(handoversInput{Result: ResultFailed}); len(failed) > 0 {
					t.Errorf("failed: %+v", failed)
				}
			})
		})
	}
}

func TestEdgeSwitchGoneInMidMove(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	r.w.mu.Lock()
	r.w.refuse = func(string) error { return errors.Join(network.ErrSwitchDown) }
	r.w.mu.Unlock()
	r.send(edge4, mac2, request(mac2, ip))
	r.eventually("a failed record", func() bool { return len(r.api.records(handoversInput{Result: ResultFailed})) == 1 })
	r.w.mu.Lock()
	r.w.refuse = nil
	r.w.mu.Unlock()
	r.idle()
	r.at(ip, mac1, edge3, mac1)

	// The old edge switch is gone: the device can still move.
	r.w.connect([]openflow.DatapathID{1, 2, 4, 5}, treeLinks)
	r.NetworkChanged(network.Event{Kind: network.SwitchDown, Switch: 3})
	if got := r.move(edge4, mac2, ip); got != ip {
		t.Fatalf("got %v", got)
	}
	r.idle()
	r.at(ip, mac1, edge4, mac2)
}
