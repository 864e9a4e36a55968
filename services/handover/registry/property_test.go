package registry_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// world is a registry with clients that rely on the answers they got, whatever happens to the
// controller and its store.
type world struct {
	*bench
	rt *rapid.T
	// has holds the lease that each client believes it has; offers holds its last offer.
	has    map[string]registry.Lease
	offers map[string]netip.Addr
}

// TestNoTwoDevicesHaveOneAddress simulates clients, an operator, a neighbour, a failing store and
// a killed controller, in any order.
func TestNoTwoDevicesHaveOneAddress(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{bench: newBench(t), rt: rt, has: map[string]registry.Lease{}, offers: map[string]netip.Addr{}}
		w.pool(func(p *registry.Pool) { p.Learn, p.Last = true, ip(13) })
		for i := range byte(6) {
			w.device(fmt.Sprintf("d%d", i), i+1)
		}
		w.must(w.PutDevice(w.ctx, registry.Device{ID: "bound", MACs: []openflow.MAC{mac(20)}, IP: ip(11)}))
		rt.Repeat(map[string]func(*rapid.T){
			"":         func(*rapid.T) { w.check() },
			"discover": func(*rapid.T) { w.discover() },
			"request":  func(*rapid.T) { w.request() },
			"release":  func(*rapid.T) { w.giveUp(w.Release) },
			"decline": func(*rapid.T) {
				w.giveUp(func(ctx context.Context, id string) error { return w.Decline(ctx, id, w.has[id].IP) })
			},
			"rebind":  func(*rapid.T) { w.rebind() },
			"away":    func(*rapid.T) { w.away() },
			"wait":    func(*rapid.T) { w.clock.add(time.Duration(rapid.IntRange(1, 45).Draw(w.rt, "seconds")) * time.Second) },
			"expire":  func(*rapid.T) { w.end() },
			"restart": func(*rapid.T) { w.store.fail(false, false); w.restart() },
			"store": func(*rapid.T) {
				w.store.fail(rapid.Bool().Draw(w.rt, "before"), rapid.Bool().Draw(w.rt, "after"))
			},
		})
	})
}

// who draws a device, one of three learned ones among them.
func (w *world) who() string {
	id := rapid.SampledFrom([]string{"d0", "d1", "d2", "d3", "d4", "d5", "bound", "l1", "l2", "l3"}).Draw(w.rt, "device")
	if id[0] == 'l' {
		d, err := w.Learn(mac(30 + id[1]))
		if err != nil {
			w.t.Fatal(err)
		}
		return d.ID
	}
	return id
}

func (w *world) anyIP(label string) netip.Addr {
	return ip(rapid.ByteRange(8, 15).Draw(w.rt, label))
}

func (w *world) discover() {
	id := w.who()
	if a, err := w.Offer(id, w.anyIP("wish"), network.PortRef{}); err == nil {
		w.offers[id] = a
	}
}

// request requests the offered address, the client's own, or any.
func (w *world) request() {
	id := w.who()
	want := w.anyIP("address")
	switch rapid.IntRange(0, 2).Draw(w.rt, "how") {
	case 0:
		want = w.offers[id]
	case 1:
		want = w.has[id].IP
	}
	if want != w.has[id].IP {
		delete(w.has, id) // a client requests another only when it has none
	}
	l, err := w.Grant(w.ctx, id, registry.Claim{IP: want})
	switch {
	case err == nil:
		if l.IP != want {
			w.rt.Fatalf("%s asked for %v and got %v", id, want, l.IP)
		}
		w.has[id] = l
	case errors.Is(err, registry.ErrNotYours), errors.Is(err, registry.ErrTaken), errors.Is(err, registry.ErrQuarantined):
		if want == w.has[id].IP {
			delete(w.has, id) // DHCPNAK: the client starts over
		}
	}
}

func (w *world) giveUp(how func(context.Context, string) error) {
	id := w.who()
	if _, ok := w.has[id]; !ok {
		return
	}
	// The client stops using the address, whatever happens to its message.
	if err := how(w.ctx, id); err != nil && !errors.Is(err, errStore) && !errors.Is(err, registry.ErrFull) &&
		!errors.Is(err, registry.ErrNoLease) && !errors.Is(err, registry.ErrNotYours) {
		w.rt.Fatalf("%s gives up %v: %v", id, w.has[id].IP, err)
	}
	delete(w.has, id)
}

// rebind binds a device to another address, or to none.
func (w *world) rebind() {
	d := registry.Device{ID: "bound", MACs: []openflow.MAC{mac(20)}, Pool: "main"}
	if rapid.Bool().Draw(w.rt, "bind") {
		d.IP = w.anyIP("address")
	}
	if err := w.PutDevice(w.ctx, d); err != nil && !errors.Is(err, errStore) && !errors.Is(err, registry.ErrConflict) &&
		!errors.Is(err, kit.ErrChanged) { // a change that was written without confirmation is not in force yet
		w.rt.Fatal(err)
	}
}

// away attaches a device in another domain, or brings it back.
func (w *world) away() {
	id := w.who()
	l, ok := w.Lease(id)
	if !ok || l.Released || !w.has[id].Active(w.clock.now()) {
		return
	}
	if !l.Away() {
		if w.SetAttachment(w.ctx, id, &registry.Attachment{At: network.PortRef{Switch: 1, Port: 9}, Peer: "east"}) == nil {
			w.has[id], _ = w.Lease(id)
		}
		return
	}
	// The device renewed its lease there, for as long as here, until it left.
	if err := w.SetAttachment(w.ctx, id, nil); err != nil && !errors.Is(err, errStore) {
		w.rt.Fatal(err)
	}
	l.Attachment, l.Expires = nil, w.clock.now().Add(time.Minute)
	w.has[id] = l
}

func (w *world) end() {
	ended, err := w.Expire(w.ctx, w.clock.now())
	if err != nil && !errors.Is(err, errStore) {
		w.rt.Fatal(err)
	}
	for _, l := range ended {
		if w.has[l.Device].Active(w.clock.now()) && w.has[l.Device].IP == l.IP {
			w.rt.Fatalf("ended although %s has it: %+v", l.Device, l)
		}
	}
}

// check checks the invariants.
func (w *world) check() {
	now := w.clock.now()
	owners := map[netip.Addr]string{}
	for id, l := range w.has {
		if !l.Active(now) {
			continue
		}
		if other, ok := owners[l.IP]; ok {
			w.rt.Fatalf("%s and %s both have %v", id, other, l.IP)
		}
		owners[l.IP] = id
		if d, ok := w.DeviceByIP(l.IP); !ok || d.ID != id {
			w.rt.Fatalf("%s has %v, which the registry says is %v's", id, l.IP, d)
		}
	}
	held := map[netip.Addr]string{}
	for _, l := range w.Leases() {
		if other, ok := held[l.IP]; ok {
			w.rt.Fatalf("the registry leases %v to %s and to %s", l.IP, l.Device, other)
		}
		held[l.IP] = l.Device
		if !l.Released && l.IP == ip(1) {
			w.rt.Fatalf("%s has the router's address", l.Device)
		}
	}
}

// TestManyAtOnce runs clients, the operator and the clock concurrently.
func TestManyAtOnce(t *testing.T) {
	b := newBench(t)
	b.pool(func(p *registry.Pool) { p.Learn, p.Last, p.LeaseTime = true, ip(25), 24*time.Hour })
	var mu sync.Mutex
	owners := map[netip.Addr]string{}
	take := func(id string, a netip.Addr) {
		mu.Lock()
		defer mu.Unlock()
		if o, ok := owners[a]; ok && o != id {
			t.Errorf("%s and %s both have %v", id, o, a)
		}
		owners[a] = id
	}
	drop := func(a netip.Addr) {
		mu.Lock()
		defer mu.Unlock()
		delete(owners, a)
	}
	var wg sync.WaitGroup
	for i := range byte(24) {
		wg.Go(func() {
			for range 60 {
				d, err := b.Learn(mac(i + 1))
				if err != nil {
					continue // being registered at the moment
				}
				a, err := b.Offer(d.ID, netip.Addr{}, network.PortRef{})
				if err != nil {
					continue
				}
				l, err := b.Grant(b.ctx, d.ID, registry.Claim{IP: a})
				if err != nil {
					continue
				}
				if d.ID != "car" { // the operator may delete it while it is here
					take(d.ID, l.IP)
					drop(l.IP)
				}
				if err := b.Release(b.ctx, d.ID); err != nil && !errors.Is(err, registry.ErrNoLease) && !errors.Is(err, registry.ErrUnknown) {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			_ = b.PutDevice(b.ctx, registry.Device{ID: "car", MACs: []openflow.MAC{mac(byte(i%24) + 1)}})
			_ = b.DeleteDevice(b.ctx, "car")
		}
	})
	wg.Go(func() {
		for range 200 {
			b.clock.add(time.Second)
			if _, err := b.Expire(b.ctx, b.clock.now()); err != nil {
				t.Error(err)
			}
			b.Usage()
		}
	})
	wg.Wait()
	before := devicesOf(b)
	b.restart()
	if after := devicesOf(b); after != before {
		t.Fatalf("before:\n%s\nafter:\n%s", before, after)
	}
}

// devicesOf lists the devices with their leases. The registry may forget earlier leases when it
// restarts.
func devicesOf(b *bench) string {
	var out strings.Builder
	for _, d := range b.Devices() {
		l, _ := b.Lease(d.ID)
		if l.Released {
			l = registry.Lease{}
		}
		fmt.Fprintln(&out, d, l.IP, l.Expires)
	}
	return out.String()
}
