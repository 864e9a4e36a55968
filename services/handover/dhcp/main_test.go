package dhcp_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	start   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	gateway = ip(1)
	// Two radios, and a port where unregistered devices may not attach.
	radioA   = network.PortRef{Switch: 1, Port: 3}
	radioB   = network.PortRef{Switch: 2, Port: 3}
	backyard = network.PortRef{Switch: 3, Port: 3}
	relay    = network.PortRef{Switch: 4, Port: 3}
)

// bench is a server for a few devices: "phone" has two interfaces and a virtual
// one, "car" signs, "desk" is bound to an address outside the range.
type bench struct {
	*dhcp.Server
	t     testing.TB
	ctx   context.Context
	reg   *registry.Registry
	store *memstore.Store
	now   time.Time
	end   func() // of the registry that runs
}

var key = []byte("0123456789abcdef0123456789abcdef")

func newBench(t testing.TB, pools ...func(*registry.Pool)) *bench {
	b := &bench{t: t, ctx: context.Background(), store: memstore.New(), now: start}
	b.start()
	p := registry.Pool{
		Name: "main", Prefix: netip.MustParsePrefix("10.8.0.0/24"), First: ip(10), Last: ip(12), Gateway: gateway,
		LeaseTime: time.Hour, DNS: []netip.Addr{ip(2), ip(3)}, MTU: 1400, Domain: "mobile.example",
	}
	for _, f := range pools {
		f(&p)
	}
	ports := []network.PortRef{radioA, radioB}
	b.must(b.putClass(registry.Class{Name: "default", Ports: ports}))
	b.must(b.putClass(registry.Class{Name: "open", Trigger: registry.TriggerOpen}))
	b.must(b.putPool(p))
	b.must(b.putDevice(registry.Device{ID: "phone", MACs: []openflow.MAC{mac(1), mac(2), mac(3)}}))
	b.must(b.putDevice(registry.Device{ID: "car", MACs: []openflow.MAC{mac(4), mac(5)}, Key: key}))
	b.must(b.putDevice(registry.Device{ID: "desk", MACs: []openflow.MAC{mac(6)}, IP: ip(200), Class: "open"}))
	return b
}

// start starts a controller on the store.
func (b *bench) start() {
	if b.end != nil {
		b.end()
	}
	r := registry.New(registry.Options{Store: b.store, Clock: func() time.Time { return b.now }})
	ctx, cancel := context.WithCancel(b.ctx)
	if err := r.Load(ctx, registry.Definitions{}); err != nil {
		cancel()
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	b.end = func() { cancel(); <-done }
	b.t.Cleanup(b.end)
	b.reg, b.Server = r, dhcp.New(r, dhcp.Options{Relays: []network.PortRef{relay}})
}

func (b *bench) putClass(c registry.Class) error { return b.reg.ClassItems.Put(b.ctx, c.Name, c, 0) }

func (b *bench) putPool(p registry.Pool) error { return b.reg.PoolItems.Put(b.ctx, p.Name, p, 0) }

func (b *bench) putDevice(d registry.Device) error { return b.reg.DeviceItems.Put(b.ctx, d.ID, d, 0) }

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// message returns what a client with that hardware address sends.
func (b *bench) message(kind dhcpv4.MessageType, chaddr openflow.MAC, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	b.t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithHwAddr(chaddr[:]), dhcpv4.WithMessageType(kind),
	}, mods...)...)
	b.must(err)
	return m
}

func (b *bench) handle(m *dhcpv4.DHCPv4, src openflow.MAC, at network.PortRef) dhcp.Decision {
	return b.decide(dhcp.Request{Message: m, Src: src, At: at, Time: b.now})
}

// decide handles a request and commits the decision; the verdict reports failures.
func (b *bench) decide(q dhcp.Request) dhcp.Decision {
	d := b.Handle(b.ctx, q)
	_ = d.Commit(b.ctx)
	return d
}

// expect fails unless the decision has the verdict.
func (b *bench) expect(d dhcp.Decision, v dhcp.Verdict) dhcp.Decision {
	b.t.Helper()
	if d.Verdict != v {
		b.t.Fatalf("%v: %s (%s), want %s", d.Type, d.Verdict, d.Reason, v)
	}
	return d
}

// attach gets an address for the client, by DISCOVER and REQUEST.
func (b *bench) attach(chaddr, src openflow.MAC, at network.PortRef) dhcp.Decision {
	b.t.Helper()
	offer := b.expect(b.handle(b.message(dhcpv4.MessageTypeDiscover, chaddr), src, at), dhcp.Offered)
	return b.expect(b.handle(b.selecting(chaddr, offer.Reply.YourIPAddr), src, at), dhcp.Granted)
}

func (b *bench) selecting(chaddr openflow.MAC, want net.IP) *dhcpv4.DHCPv4 {
	return b.message(dhcpv4.MessageTypeRequest, chaddr,
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(gateway.AsSlice())),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(want)))
}

func (b *bench) rebooting(chaddr openflow.MAC, want netip.Addr) *dhcpv4.DHCPv4 {
	return b.message(dhcpv4.MessageTypeRequest, chaddr, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(want.AsSlice())))
}

func (b *bench) renewing(chaddr openflow.MAC, own netip.Addr) *dhcpv4.DHCPv4 {
	return b.message(dhcpv4.MessageTypeRequest, chaddr, dhcpv4.WithClientIP(own.AsSlice()))
}

func (b *bench) sign(m *dhcpv4.DHCPv4, src openflow.MAC) *dhcpv4.DHCPv4 {
	b.t.Helper()
	b.must(dhcp.Sign(key, m, src, b.now))
	return m
}

func mac(n byte) openflow.MAC { return openflow.MAC{2, 0, 0, 0, 0, n} }

func ip(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 8, 0, n}) }

// where prints the address and port of a reply.
func where(d dhcp.Decision) string { return fmt.Sprintf("%v %v", d.To, d.ToIP) }
