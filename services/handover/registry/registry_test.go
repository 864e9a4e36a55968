package registry_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

func TestOneAddressForAllInterfaces(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1, 2)
	l := b.grant("car")
	for _, m := range []byte{1, 2} {
		if d, ok := b.DeviceByMAC(mac(m)); !ok || d.ID != "car" {
			t.Fatalf("MAC %d belongs to %v", m, d)
		}
	}
	if d, ok := b.DeviceByIP(l.IP); !ok || d.ID != "car" || d.HomeMAC() != mac(1) {
		t.Fatalf("%v belongs to %v", l.IP, d)
	}
	b.clock.add(20 * time.Second)
	if again := b.grant("car"); again.IP != l.IP || !again.Expires.Equal(b.clock.now().Add(time.Minute)) || again.Granted != l.Granted {
		t.Fatalf("renewed: %+v", again)
	}
}

func TestEachDeviceHasItsOwnAddress(t *testing.T) {
	b := newBench(t)
	b.pool(func(p *registry.Pool) { p.Gateway, p.Server = ip(11), ip(12) })
	b.device("a", 1)
	b.device("b", 2)
	if l := b.grant("a"); l.IP != ip(10) {
		t.Fatalf("first address %v", l.IP)
	}
	// The addresses of the router and the server are in the range, but are not given out.
	_, err := b.Offer("b", netip.Addr{}, network.PortRef{})
	b.fails(err, registry.ErrExhausted)
	if u := b.Usage(); len(u) != 1 || u["main"].Size != 1 || u["main"].Held != 1 {
		t.Fatalf("usage %+v", u)
	}
}

func TestAWishIsGrantedIfItCanBe(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("a", 1)
	b.device("b", 2)
	for _, c := range []struct {
		id         string
		wish, want netip.Addr
	}{
		{"a", ip(12), ip(12)},
		{"b", ip(12), ip(10)}, // offered to a
		{"b", ip(11), ip(10)}, // has been offered another
	} {
		if got, err := b.Offer(c.id, c.wish, network.PortRef{}); err != nil || got != c.want {
			t.Fatalf("%s wishes %v and is offered %v (%v), want %v", c.id, c.wish, got, err, c.want)
		}
	}
	b.device("c", 3)
	if got, err := b.Offer("c", ip(200), network.PortRef{}); err != nil || got != ip(11) {
		t.Fatalf("an address out of the range: %v, %v", got, err)
	}
}

func TestGrantRefusesAddressesOfOthers(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("a", 1)
	b.device("b", 2)
	b.must(b.PutDevice(b.ctx, registry.Device{ID: "s", MACs: []openflow.MAC{mac(3)}, IP: ip(12)}))
	b.grant("a")
	for _, c := range []struct {
		id   string
		ip   netip.Addr
		want error
	}{
		{"b", ip(10), registry.ErrTaken},
		{"b", ip(12), registry.ErrTaken}, // bound, not leased
		{"b", ip(1), registry.ErrNotYours},
		{"b", ip(200), registry.ErrNotYours},
		{"b", netip.Addr{}, registry.ErrNotYours},
		{"a", ip(11), registry.ErrNotYours}, // has another
		{"s", ip(11), registry.ErrNotYours}, // is bound to another
		{"nobody", ip(11), registry.ErrUnknown},
	} {
		_, err := b.Grant(b.ctx, c.id, registry.Claim{IP: c.ip})
		b.fails(err, c.want)
	}
	_, err := b.Grant(b.ctx, "b", registry.Claim{IP: ip(11), ClientID: make([]byte, 300)})
	b.fails(err, registry.ErrInvalid)
}

func TestAPoolRunsOutAndRecovers(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	for i, id := range []string{"a", "b", "c", "d"} {
		b.device(id, byte(i+1))
	}
	for _, id := range []string{"a", "b", "c"} {
		b.grant(id)
	}
	_, err := b.Offer("d", netip.Addr{}, network.PortRef{})
	b.fails(err, registry.ErrExhausted)

	b.clock.add(time.Minute)
	b.must(b.Release(b.ctx, "c"))
	_, err = b.Offer("d", netip.Addr{}, network.PortRef{})
	b.fails(err, registry.ErrExhausted) // nobody has reported yet that a and b are gone, and c's address rests
	ended := b.expire()
	if len(ended) != 2 || ended[0].Released {
		t.Fatalf("ended: %+v", ended)
	}
	if again := b.expire(); len(again) != 0 {
		t.Fatalf("ended twice: %+v", again)
	}
	b.clock.add(11 * time.Second)
	if l := b.grant("d"); l.IP == netip.Addr(netip.Addr{}) {
		t.Fatal("no address after one became free")
	}
	// A device that comes back gets its own address, if nobody has taken it.
	taken, _ := b.Lease("d")
	for i, id := range []string{"a", "b", "c"} {
		l, ok := b.Lease(id)
		if own := ip(byte(10 + i)); own != taken.IP && (!ok || l.IP != own || b.grant(id).IP != own) {
			t.Fatalf("%s came back to %+v", id, l)
		}
	}
	if u := b.Usage()["main"]; u.Held != 3 {
		t.Fatalf("usage %+v", u)
	}
}

func TestTheAddressFreeForLongestIsReused(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	for i, id := range []string{"a", "b", "c", "d"} {
		b.device(id, byte(i+1))
	}
	for _, id := range []string{"a", "b", "c"} {
		b.grant(id)
	}
	for _, id := range []string{"b", "c", "a"} {
		b.must(b.Release(b.ctx, id))
		b.clock.add(time.Second)
	}
	b.clock.add(time.Minute)
	if l := b.grant("d"); l.IP != ip(11) {
		t.Fatalf("reused %v, want b's", l.IP)
	}
	if l, ok := b.Lease("b"); ok {
		t.Fatalf("b still remembers %v", l)
	}
}

func TestDeclinedAddressesAreGivenToNobody(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("a", 1)
	l := b.grant("a")
	b.fails(b.Decline(b.ctx, "a", ip(12)), registry.ErrNotYours)
	b.must(b.Decline(b.ctx, "a", l.IP))
	b.restart()
	if n := b.grant("a"); n.IP == l.IP {
		t.Fatal("the device got the address back that it declined")
	}
	b.device("b", 2)
	_, err := b.Grant(b.ctx, "b", registry.Claim{IP: l.IP})
	b.fails(err, registry.ErrQuarantined)
	if u := b.Usage()["main"]; u.Quarantined != 1 || u.Held != 2 {
		t.Fatalf("usage %+v", u)
	}
	b.clock.add(10 * time.Minute)
	b.expire()
	if entries, err := b.store.List(b.ctx, "handover/declined/"); err != nil || len(entries) != 0 {
		t.Fatalf("kept in the store: %v, %v", entries, err)
	}
	_, err = b.Grant(b.ctx, "b", registry.Claim{IP: l.IP})
	b.must(err)
}

// TestDeclinedAddressesComeBack checks that a declined address may return after ten seconds, to the
// device that has it by its declaration, and each time later if it is declined again at once.
func TestDeclinedAddressesComeBack(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	d := b.device("a", 1)
	d.IP = ip(15)
	b.must(b.PutDevice(b.ctx, d))
	for _, rest := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		b.grant("a")
		b.must(b.Decline(b.ctx, "a", d.IP))
		_, err := b.Offer("a", d.IP, network.PortRef{})
		b.fails(err, registry.ErrQuarantined)
		q := b.Quarantined()
		if len(q) != 1 || q[0].IP != d.IP || q[0].Device != "a" || q[0].Due.Sub(b.clock.now()) != rest || q[0].Until.Sub(b.clock.now()) != 10*time.Minute {
			t.Fatalf("%+v, want it due after %v", q, rest)
		}
		b.clock.add(rest)
		b.must(b.Return(b.ctx, q[0]))
		b.must(b.Return(b.ctx, q[0])) // it has ended by now
		if l := b.grant("a"); l.IP != d.IP {
			t.Fatalf("granted %v, want its own", l.IP)
		}
		if entries, err := b.store.List(b.ctx, "handover/declined/"); err != nil || len(entries) != 0 {
			t.Fatalf("kept in the store: %v, %v", entries, err)
		}
	}
	b.must(b.Decline(b.ctx, "a", d.IP))
	old := b.Quarantined()[0]
	b.clock.add(time.Minute)
	b.restart()
	b.must(b.Return(b.ctx, b.Quarantined()[0]))
	b.grant("a")
	b.must(b.Decline(b.ctx, "a", d.IP))
	b.must(b.Return(b.ctx, old)) // of a quarantine before this one
	if len(b.Quarantined()) != 1 {
		t.Error("the result of an old probe has ended a new quarantine")
	}
}

func TestADeviceCannotDeclineAWholePool(t *testing.T) {
	b := newBench(t)
	b.pool(func(p *registry.Pool) { p.Last = ip(30) })
	b.device("a", 1)
	var err error
	n := 0
	for ; err == nil && n < 20; n++ {
		err = b.Decline(b.ctx, "a", b.grant("a").IP)
	}
	b.fails(err, registry.ErrFull)
	if n != 5 {
		t.Fatalf("refused at the %d. address", n)
	}
}

func TestStaticBindings(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.must(b.PutDevice(b.ctx, registry.Device{ID: "out", MACs: []openflow.MAC{mac(1)}, IP: ip(200)}))
	b.must(b.PutDevice(b.ctx, registry.Device{ID: "in", MACs: []openflow.MAC{mac(2)}, IP: ip(11)}))
	for _, c := range []struct {
		id string
		ip netip.Addr
	}{{"out", ip(200)}, {"in", ip(11)}} {
		if l := b.grant(c.id); l.IP != c.ip {
			t.Fatalf("%s got %v", c.id, l.IP)
		}
	}
	b.must(b.Release(b.ctx, "in"))
	b.clock.add(time.Hour)
	b.device("a", 3)
	b.device("b", 4)
	if x, y := b.grant("a").IP, b.grant("b").IP; x != ip(10) || y != ip(12) {
		t.Fatalf("a and b got %v and %v", x, y)
	}
	if d, ok := b.DeviceByIP(ip(11)); !ok || d.ID != "in" {
		t.Fatalf("%v is bound to %v", ip(11), d)
	}
	// Without the binding anybody may get the address after a while.
	b.device("in", 2)
	b.clock.add(time.Minute)
	b.expire()
	b.device("c", 5)
	if l := b.grant("c"); l.IP != ip(11) {
		t.Fatalf("c got %v", l.IP)
	}
}

func TestClassesAndTheirDefaults(t *testing.T) {
	b := newBench(t)
	b.must(b.PutClass(b.ctx, registry.Class{Name: "open", Trigger: registry.TriggerOpen, Policy: registry.PolicySeamless, Overlap: time.Second}))
	for _, c := range []struct {
		device  registry.Device
		trigger registry.Trigger
		policy  registry.Policy
		overlap time.Duration
	}{
		{registry.Device{}, registry.TriggerPorts, registry.PolicySaving, 200 * time.Millisecond},
		{registry.Device{Key: make([]byte, 32)}, registry.TriggerSigned, registry.PolicySaving, 200 * time.Millisecond},
		{registry.Device{Learned: true}, "", registry.PolicySaving, 200 * time.Millisecond},
		{registry.Device{Class: "open"}, registry.TriggerOpen, registry.PolicySeamless, time.Second},
	} {
		if k := b.ClassOf(c.device); k.Trigger != c.trigger || k.Policy != c.policy || k.Overlap != c.overlap {
			t.Errorf("%v: %+v", c.device, k)
		}
	}
	b.pool(func(p *registry.Pool) { p.Class = "open" })
	b.fails(b.DeleteClass(b.ctx, "open"), kit.ErrInUse)
	b.fails(b.DeleteClass(b.ctx, "shut"), kit.ErrUnknown)
	b.must(b.DeletePool(b.ctx, "main"))
	b.must(b.DeleteClass(b.ctx, "open"))
	if len(b.ClassItems.Values()) != 0 {
		t.Fatal("the class is still there")
	}
}

func TestADeviceThatChangesKeepsItsLease(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1, 2)
	l := b.grant("car")
	b.device("car", 1, 3)
	if _, ok := b.DeviceByMAC(mac(2)); ok {
		t.Fatal("the MAC that was taken away still belongs to it")
	}
	if again := b.grant("car"); again.IP != l.IP {
		t.Fatalf("moved from %v to %v", l.IP, again.IP)
	}
	b.device("van", 2)
	// A device that is bound to another address has to move, and the old address becomes free.
	b.must(b.PutDevice(b.ctx, registry.Device{ID: "car", MACs: []openflow.MAC{mac(1)}, IP: ip(99)}))
	_, err := b.Grant(b.ctx, "car", registry.Claim{IP: l.IP})
	b.fails(err, registry.ErrNotYours)
	if moved := b.grant("car"); moved.IP != ip(99) {
		t.Fatalf("moved to %v", moved.IP)
	}
	b.clock.add(11 * time.Second)
	_, err = b.Grant(b.ctx, "van", registry.Claim{IP: l.IP})
	b.must(err)
}

func TestDeletedDevicesAreGone(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1)
	l := b.grant("car")
	b.must(b.DeleteDevice(b.ctx, "car"))
	b.fails(b.DeleteDevice(b.ctx, "car"), kit.ErrUnknown)
	b.device("van", 1)
	_, err := b.Grant(b.ctx, "van", registry.Claim{IP: l.IP})
	b.fails(err, registry.ErrTaken) // its rules may still be in the switches
	b.restart()
	if ids := deviceIDs(b); !slices.Equal(ids, []string{"van"}) {
		t.Fatalf("devices %v", ids)
	}
	if len(b.Leases()) != 0 {
		t.Fatalf("leases %v", b.Leases())
	}
}

func deviceIDs(b *bench) []string {
	var out []string
	for _, d := range b.Devices() {
		out = append(out, d.ID)
	}
	return out
}
