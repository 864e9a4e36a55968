package handover

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

// gated is a store in which, once it is shut, the next write of a lease waits until the test
// decides its result. After an error nothing is written.
type gated struct {
	store.Store
	ended atomic.Pointer[chan error]
}

func (g *gated) shut() (end func(error)) {
	ended := make(chan error, 1)
	g.ended.Store(&ended)
	return func(err error) { ended <- err }
}

// Apply implements store.Store.
func (g *gated) Apply(ctx context.Context, ops ...store.Op) error {
	if !strings.HasPrefix(ops[0].Key, "handover/leases/") {
		return g.Store.Apply(ctx, ops...)
	}
	if ended := g.ended.Swap(nil); ended != nil {
		select {
		case err := <-*ended:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return g.Store.Apply(ctx, ops...)
}

func newGated(t *testing.T) *gated {
	g := &gated{Store: memstore.New()}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// served reports whether packets to a device with home MAC address mac1 arrive there, and nowhere
// else.
func (r *rig) served(ip netip.Addr, want arrival) bool {
	got := r.down(ip, mac1)
	return len(got) == 1 && got[0] == want
}

var errDisk = errors.New("the disk is full")

// Rules do not wait for the store; the answer waits for both.
func TestRulesRunAheadOfTheStore(t *testing.T) {
	g := newGated(t)
	r := start(t, newWorld(treeLinks), g, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	end := g.shut()
	r.send(edge4, mac2, request(mac2, ip))
	r.eventually("the rules of the new place", func() bool { return r.served(ip, arrival{edge4, routerMAC, mac2}) })
	if got := r.answer(edge4, dhcpv4.MessageTypeAck, 50*time.Millisecond); got.IsValid() {
		t.Error("acknowledged before the lease was written")
	}
	if l, _ := r.registry.Lease("car"); l.Attachment.At != edge3 {
		t.Errorf("before it was written, the lease says that the device is at %v", l.Attachment.At)
	}
	end(nil)
	if got := r.answer(edge4, dhcpv4.MessageTypeAck, answerTime); got != ip {
		t.Errorf("acknowledged %v, want %v", got, ip)
	}
	r.idle()
	r.at(ip, mac1, edge4, mac2)
	if l, _ := r.registry.Lease("car"); l.Attachment.At != edge4 {
		t.Errorf("the lease says that the device is at %v", l.Attachment.At)
	}
	rec := r.api.records(handoversInput{Device: "car", Kind: "move"})
	if len(rec) != 1 || rec[0].Parts.Store < Duration(50*time.Millisecond) {
		t.Errorf("record %+v", rec)
	}
}

// A device whose lease cannot be written stays where it was, or detached, and gets no answer.
func TestALeaseThatCannotBeWrittenMovesNothing(t *testing.T) {
	for name, seamless := range map[string]bool{"saving": false, "seamless": true} {
		t.Run(name, func(t *testing.T) {
			g := newGated(t)
			r := start(t, newWorld(treeLinks), g, func(x *Settings) {
				if seamless {
					alter(x.Devices, "car", func(d *registry.Device) { d.Class = "seamless" })
				}
			})
			ip := r.attach(edge3, mac1)
			r.idle()
			r.failing(g, func() { r.send(edge4, mac2, request(mac2, ip)) })
			if got := r.answer(edge4, dhcpv4.MessageTypeAck, 50*time.Millisecond); got.IsValid() {
				t.Error("acknowledged")
			}
			r.eventually("the old place to be the only one", func() bool { return r.served(ip, arrival{edge3, routerMAC, mac1}) })
			r.at(ip, mac1, edge3, mac1)
			if l, _ := r.registry.Lease("car"); l.Attachment.At != edge3 {
				t.Errorf("the lease says that it is at %v", l.Attachment.At)
			}
			if got := r.move(edge4, mac2, ip); got != ip {
				t.Errorf("then got %v", got)
			}
		})
	}
	t.Run("that was nowhere", func(t *testing.T) {
		g := newGated(t)
		r := start(t, newWorld(treeLinks), g, nil)
		r.send(edge3, mac1, discover(mac1))
		ip := r.answer(edge3, dhcpv4.MessageTypeOffer, answerTime)
		r.failing(g, func() { r.send(edge3, mac1, request(mac1, ip)) })
		r.eventually("the rules to go", func() bool { return len(r.w.kept()) == 0 })
		if got := r.move(edge3, mac1, ip); got != ip {
			t.Errorf("then got %v", got)
		}
		r.idle()
		r.at(ip, mac1, edge3, mac1)
	})
}

// failing runs a request whose lease the store refuses.
func (r *rig) failing(g *gated, request func()) {
	r.t.Helper()
	end := g.shut()
	request()
	end(errDisk)
	r.eventually("a failed record", func() bool { return len(r.api.records(handoversInput{Result: ResultFailed})) == 1 })
	r.idle()
}

// A controller that is killed between rules and store comes back with the stored lease, and
// restores the rules of that lease.
func TestKilledBetweenRulesAndStore(t *testing.T) {
	g := newGated(t)
	w := newWorld(treeLinks)
	r := start(t, w, g, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	end := g.shut()
	r.send(edge4, mac2, request(mac2, ip))
	r.eventually("the rules of the new place", func() bool { return r.served(ip, arrival{edge4, routerMAC, mac2}) })
	// The first controller is stopped; a second one finds its rules and store.
	again := start(t, w, g.Store, nil)
	if l, _ := again.registry.Lease("car"); l.IP != ip || l.Attachment == nil || l.Attachment.At != edge3 {
		t.Errorf("lease %+v", l)
	}
	again.idle()
	again.at(ip, mac1, edge3, mac1)
	if got := again.move(edge4, mac2, ip); got != ip {
		t.Errorf("asked again, it got %v", got)
	}
	again.idle()
	again.at(ip, mac1, edge4, mac2)
	again.stop()
	end(errDisk)
	r.idle()
}
