package handover

import (
	"encoding/json"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/store"
)

// phone2 is the MAC address of the phone's second interface.
var phone2 = mac("02:00:00:00:00:04")

// again starts a service after another was killed: its ledger is empty, and the switches keep
// their rules.
func (r *rig) again(before ...func(*Service)) *rig {
	r.t.Helper()
	r.stop()
	r.w.Restart()
	return start(r.t, r.w, r.st, nil, before...)
}

// both reports whether packets to the phone arrive at two places, and packets from it are accepted
// at both.
func (r *rig) both(ip netip.Addr, a, b arrival) bool {
	r.t.Helper()
	down := r.down(ip, mac3)
	return len(down) == 2 && slices.Contains(down, a) && slices.Contains(down, b) &&
		len(r.up(a.At, a.Dst, ip)) == 1 && len(r.up(b.At, b.Dst, ip)) == 1
}

// longOverlap makes the overlap longer than any test: the service is stopped before it gives up
// the old place.
func longOverlap(s *Settings) {
	alter(s.Classes, "seamless", func(c *registry.Class) { c.Overlap = time.Minute })
}

// A controller that is killed after it has stored a move may not have answered. After the start
// the device is served at both places, until it asks again at its new place or at its old one.
func TestDoubtAfterStart(t *testing.T) {
	old, now := arrival{edge3, routerMAC, mac3}, arrival{edge4, routerMAC, phone2}
	for _, c := range []struct {
		name string
		asks network.PortRef
		from openflow.MAC
		is   arrival
	}{
		{"it asks again", edge4, phone2, now},
		{"it has given up", edge3, mac3, old},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, longOverlap)
			ip := r.attach(edge3, mac3)
			r.move(edge4, phone2, ip)
			next := r.again()
			if !next.both(ip, old, now) {
				t.Errorf("after the start packets to it come out at %v", next.down(ip, mac3))
			}
			if got := next.move(c.asks, c.from, ip); got != ip {
				t.Fatalf("it asks and gets %v, it had %v", got, ip)
			}
			next.eventually("it is served at one place", func() bool {
				down := next.down(ip, mac3)
				return len(down) == 1 && down[0] == c.is
			})
			next.idle()
			if l, _ := next.registry.Lease("phone"); c.is == now && l.Left != nil {
				t.Errorf("it has asked again and still counts as doubtful: %+v", l)
			}
		})
	}
}

// The switch of the previous place may connect last. Until it does, the rules in the switches
// stay; if it never does, the device is served at its stored place.
func TestDoubtBeforeOldSwitchIsThere(t *testing.T) {
	old, now := arrival{edge3, routerMAC, mac3}, arrival{edge4, routerMAC, phone2}
	without := slices.DeleteFunc(slices.Clone(treeLinks), func(l network.Link) bool {
		return l.From.Switch == edge3.Switch || l.To.Switch == edge3.Switch
	})
	for name, comes := range map[string]bool{"it comes": true, "it does not come": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, longOverlap)
			ip := r.attach(edge3, mac3)
			r.move(edge4, phone2, ip)
			r.stop()
			r.w.Restart()
			r.w.connect(slices.DeleteFunc([]openflow.DatapathID{1, 2, 3, 4, 5}, func(d openflow.DatapathID) bool { return d == edge3.Switch }), without)
			settle := func(s *Settings) {
				if s.Settle = 4 * quietTime; comes {
					s.Settle = time.Minute
				}
			}
			var tried sync.WaitGroup
			defer tried.Wait()
			next := start(t, r.w, r.st, settle, func(s *Service) {
				if !comes {
					return
				}
				tried.Go(func() {
					f := &rig{Service: s, t: t, w: r.w}
					f.eventually("it has been tried without the switch", func() bool {
						m := s.placement.mobileOf("phone")
						s.mu.Lock()
						defer s.mu.Unlock()
						return m.err != ""
					})
					if s.api.status().Ready {
						t.Error("ready before the switch is there")
					}
					r.w.connect([]openflow.DatapathID{1, 2, 3, 4, 5}, treeLinks)
				})
			})
			if comes {
				if !next.both(ip, old, now) {
					t.Errorf("packets to it come out at %v", next.down(ip, mac3))
				}
			} else if down := next.down(ip, mac3); len(down) != 1 || down[0] != now {
				t.Errorf("packets to it come out at %v, want %v", down, now)
			}
		})
	}
}

// A device that asks again at its stored place is served there, even if the switch of its previous
// place is not connected.
func TestAsksWhileOldSwitchIsAway(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac3)
	r.move(edge4, phone2, ip)
	r.stop()
	r.w.Restart()
	switches := []openflow.DatapathID{1, 2, 4, 5}
	r.w.connect(switches, slices.DeleteFunc(slices.Clone(treeLinks), func(l network.Link) bool {
		return l.From.Switch == edge3.Switch || l.To.Switch == edge3.Switch
	}))
	var asking sync.WaitGroup
	defer asking.Wait()
	next := start(t, r.w, r.st, func(s *Settings) { s.Settle = time.Minute }, func(s *Service) {
		asking.Go(func() {
			f := &rig{Service: s, t: t, w: r.w}
			f.eventually("the service takes packets", func() bool { return s.view.Load() != nil })
			f.send(edge4, phone2, request(phone2, ip))
		})
	})
	if down := next.down(ip, mac3); len(down) != 1 || down[0] != (arrival{edge4, routerMAC, phone2}) {
		t.Errorf("packets to it come out at %v", down)
	}
}

// A move is not tentative if it was long ago, if the device has asked again since, or if its class
// is not seamless.
func TestNoDoubtAfterStart(t *testing.T) {
	at := arrival{edge4, routerMAC, phone2}
	for name, before := range map[string]func(*testing.T, *rig, netip.Addr){
		"long ago": func(t *testing.T, r *rig, _ netip.Addr) {
			r.stop()
			l, err := store.GetJSON[registry.Lease](t.Context(), r.st, "handover/leases/phone")
			if err != nil {
				t.Fatal(err)
			}
			l.Attachment.Since = l.Attachment.Since.Add(-2 * tentativeAge)
			b, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.st.Put(t.Context(), "handover/leases/phone", b); err != nil {
				t.Fatal(err)
			}
		},
		"it has asked again": func(_ *testing.T, r *rig, ip netip.Addr) { r.move(edge4, phone2, ip) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			ip := r.attach(edge3, mac3)
			r.move(edge4, phone2, ip)
			before(t, r, ip)
			next := r.again()
			if down := next.down(ip, mac3); len(down) != 1 || down[0] != at {
				t.Errorf("packets to it come out at %v, want %v", down, at)
			}
		})
	}
}

// A move that is requested during a start begins from the device's previous place, so that it is
// without loss, too.
func TestMoveDuringStart(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac3)
	r.idle()
	r.eventually("the links to be stored", func() bool { _, err := r.st.Get(t.Context(), keyLinks); return err == nil })
	r.stop()
	if err := r.st.Delete(t.Context(), keyLinks); err != nil { // so that the start takes a while
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	next := r.again(func(s *Service) {
		asking.Go(func() {
			f := &rig{Service: s, t: t, w: r.w}
			f.eventually("the service takes packets", func() bool { return s.view.Load() != nil })
			f.send(edge4, phone2, request(phone2, ip))
		})
	})
	if got := next.answer(edge4, dhcpv4.MessageTypeAck, answerTime); got != ip {
		t.Fatalf("it gets %v, it had %v", got, ip)
	}
	rec := next.api.records(handoversInput{Device: "phone", Kind: "move"})
	if len(rec) != 1 || !rec[0].Bicast || rec[0].From.Port.PortRef != edge3 {
		t.Errorf("record %+v", rec)
	}
}
