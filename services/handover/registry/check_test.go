package registry_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// refused checks that the error names the field and nothing was let through.
func refused(t *testing.T, err, kind error, field string) {
	t.Helper()
	faults, is := errors.AsType[kit.Faults](err)
	if !is || !errors.Is(err, kind) {
		t.Fatalf("error %v, want a refusal that is %q", err, kind)
	}
	for _, f := range faults {
		if f.Field == field && f.Want != "" {
			return
		}
	}
	t.Fatalf("error %v, want one about %q", err, field)
}

func TestPutPoolRefusesWhatIsWrong(t *testing.T) {
	cases := map[string]struct {
		field string
		spoil func(*registry.Pool)
	}{
		"no name":            {"name", func(p *registry.Pool) { p.Name = "" }},
		"path in name":       {"name", func(p *registry.Pool) { p.Name = "a/b" }},
		"no prefix":          {"prefix", func(p *registry.Pool) { p.Prefix = netip.Prefix{} }},
		"IPv6":               {"prefix", func(p *registry.Pool) { p.Prefix = prefix("2001:db8::/64") }},
		"bits beyond length": {"prefix", func(p *registry.Pool) { p.Prefix = prefix("10.8.0.7/24") }},
		"no room for hosts":  {"prefix", func(p *registry.Pool) { p.Prefix = prefix("10.8.0.0/31") }},
		"too wide":           {"prefix", func(p *registry.Pool) { p.Prefix = prefix("10.0.0.0/7") }},
		"first outside":      {"first", func(p *registry.Pool) { p.First = netip.MustParseAddr("10.9.0.10") }},
		"first is network":   {"first", func(p *registry.Pool) { p.First = ip(0) }},
		"last is broadcast":  {"last", func(p *registry.Pool) { p.Last = ip(255) }},
		"last below first":   {"last", func(p *registry.Pool) { p.First, p.Last = ip(20), ip(19) }},
		"no gateway":         {"gateway", func(p *registry.Pool) { p.Gateway = netip.Addr{} }},
		"gateway elsewhere":  {"gateway", func(p *registry.Pool) { p.Gateway = netip.MustParseAddr("10.9.0.1") }},
		"server elsewhere":   {"server", func(p *registry.Pool) { p.Server = netip.MustParseAddr("10.9.0.1") }},
		"no lease time":      {"lease_time", func(p *registry.Pool) { p.LeaseTime = 0 }},
		"lease of ages":      {"lease_time", func(p *registry.Pool) { p.LeaseTime = 400 * 24 * time.Hour }},
		"tiny MTU":           {"mtu", func(p *registry.Pool) { p.MTU = 68 }},
		"negative MTU":       {"mtu", func(p *registry.Pool) { p.MTU = -1 }},
		"domain with spaces": {"domain", func(p *registry.Pool) { p.Domain = "a b" }},
		"many DNS servers":   {"dns", func(p *registry.Pool) { p.DNS = make([]netip.Addr, 9) }},
		"multicast DNS":      {"dns[0]", func(p *registry.Pool) { p.DNS = []netip.Addr{netip.MustParseAddr("224.0.0.1")} }},
		"group as gateway":   {"gateway_mac", func(p *registry.Pool) { p.GatewayMAC = openflow.MAC{1} }},
		"learning for home":  {"learn", func(p *registry.Pool) { p.Home, p.Learn = "east", true }},
		"range for home":     {"first", func(p *registry.Pool) { p.Home = "east" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			p := mainPool()
			c.spoil(&p)
			refused(t, b.PutPool(b.ctx, p), registry.ErrInvalid, c.field)
			if len(b.Pools()) != 0 || b.store.writes != 0 {
				t.Fatal("part of the pool was taken over")
			}
		})
	}
}

func TestPutPoolRefusesWhatDoesNotFit(t *testing.T) {
	cases := map[string]struct {
		field string
		spoil func(*registry.Pool)
	}{
		"unknown class":   {"class", func(p *registry.Pool) { p.Class = "cars" }},
		"network overlap": {"prefix", func(p *registry.Pool) { p.Prefix = prefix("10.8.0.0/23") }},
		"range overlap":   {"first", func(p *registry.Pool) { p.First, p.Last = ip(12), ip(14) }},
		"neighbour's network is ours": {"prefix", func(p *registry.Pool) {
			p.Home, p.First, p.Last = "east", netip.Addr{}, netip.Addr{}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.pool(nil)
			p := mainPool()
			p.Name, p.First, p.Last = "more", ip(20), ip(22)
			c.spoil(&p)
			refused(t, b.PutPool(b.ctx, p), registry.ErrConflict, c.field)
		})
	}
}

func TestPutPoolRefusesToLeaveDevicesOut(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1)
	b.grant("car")
	refused(t, b.PutPool(b.ctx, movedPool()), registry.ErrConflict, "prefix")
	b.fails(b.DeletePool(b.ctx, "main"), kit.ErrInUse)
	b.must(b.DeleteDevice(b.ctx, "car"))
	b.must(b.DeletePool(b.ctx, "main"))
	b.fails(b.DeletePool(b.ctx, "main"), kit.ErrUnknown)
}

// Neither a lease that is being written nor one that is requested while the pool is being written
// ends up outside of the pool.
func TestPutPoolBesideReservation(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1)
	b.device("bus", 2)
	other := movedPool()
	address, err := b.Offer("car", netip.Addr{}, network.PortRef{})
	b.must(err)
	reserved, err := b.Reserve("car", registry.Claim{IP: address})
	b.must(err)
	refused(t, b.PutPool(b.ctx, other), registry.ErrConflict, "prefix")
	b.must(reserved.Commit(b.ctx))
	refused(t, b.PutPool(b.ctx, other), registry.ErrConflict, "prefix")
	b.must(b.DeleteDevice(b.ctx, "car"))

	address, err = b.Offer("bus", netip.Addr{}, network.PortRef{})
	b.must(err)
	asked := false
	b.store.during = func() {
		asked = true
		_, err := b.Reserve("bus", registry.Claim{IP: address})
		b.fails(err, registry.ErrNotYours)
	}
	b.must(b.PutPool(b.ctx, other))
	if b.store.during = nil; !asked {
		t.Fatal("the pool was not written")
	}
	if l := b.grant("bus"); !other.Prefix.Contains(l.IP) {
		t.Errorf("the lease is of %v", l.IP)
	}
}

// A pool whose change cannot be written stays unchanged.
func TestPutPoolThatFails(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1)
	other := movedPool()
	b.store.fail(true, false)
	b.fails(b.PutPool(b.ctx, other), errStore)
	b.store.fail(false, false)
	b.grant("car")
}

// The gateway of a pool cannot become the address that a device has.
func TestPutPoolRefusesLeasedGateway(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1)
	p := mainPool()
	p.Gateway = b.grant("car").IP
	refused(t, b.PutPool(b.ctx, p), registry.ErrConflict, "gateway")
}

func TestPutClassRefusesWhatIsWrong(t *testing.T) {
	cases := map[string]struct {
		field string
		class registry.Class
	}{
		"policy":      {"policy", registry.Class{Name: "cars", Policy: "eager"}},
		"trigger":     {"trigger", registry.Class{Name: "cars", Trigger: "luck"}},
		"overlap":     {"overlap", registry.Class{Name: "cars", Overlap: time.Minute}},
		"before":      {"overlap", registry.Class{Name: "cars", Overlap: -1}},
		"no such":     {"ports[0]", registry.Class{Name: "cars", Ports: []network.PortRef{{Switch: 1}}}},
		"nowhere":     {"ports[0]", registry.Class{Name: "cars", Ports: []network.PortRef{{Port: 1}}}},
		"of openflow": {"ports[0]", registry.Class{Name: "cars", Ports: []network.PortRef{{Switch: 1, Port: openflow.PortLocal}}}},
		"name":        {"name", registry.Class{Name: strings.Repeat("c", 65)}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			refused(t, b.PutClass(b.ctx, c.class), registry.ErrInvalid, c.field)
		})
	}
}

func TestPutDeviceRefusesWhatIsWrong(t *testing.T) {
	cases := map[string]struct {
		kind  error
		field string
		spoil func(*registry.Device)
	}{
		"no id":             {registry.ErrInvalid, "name", func(d *registry.Device) { d.ID = "" }},
		"no MAC":            {registry.ErrInvalid, "macs", func(d *registry.Device) { d.MACs = nil }},
		"many MACs":         {registry.ErrInvalid, "macs", func(d *registry.Device) { d.MACs = make([]openflow.MAC, 17) }},
		"zero MAC":          {registry.ErrInvalid, "macs[0]", func(d *registry.Device) { d.MACs[0] = openflow.MAC{} }},
		"group MAC":         {registry.ErrInvalid, "macs[0]", func(d *registry.Device) { d.MACs[0] = openflow.MAC{1} }},
		"MAC twice":         {registry.ErrInvalid, "macs[1]", func(d *registry.Device) { d.MACs = append(d.MACs, d.MACs[0]) }},
		"short key":         {registry.ErrInvalid, "key", func(d *registry.Device) { d.Key = []byte("secret") }},
		"visitor":           {registry.ErrInvalid, "home", func(d *registry.Device) { d.Home = "east" }},
		"learned":           {registry.ErrInvalid, "learned", func(d *registry.Device) { d.Learned = true }},
		"multicast":         {registry.ErrInvalid, "ip", func(d *registry.Device) { d.IP = netip.MustParseAddr("224.0.0.9") }},
		"MAC of another":    {registry.ErrConflict, "macs[0]", func(d *registry.Device) { d.MACs[0] = mac(2) }},
		"address bound":     {registry.ErrConflict, "ip", func(d *registry.Device) { d.IP = ip(100) }},
		"address leased":    {registry.ErrConflict, "ip", func(d *registry.Device) { d.IP = ip(10) }},
		"gateway's address": {registry.ErrConflict, "ip", func(d *registry.Device) { d.IP = ip(1) }},
		"broadcast address": {registry.ErrConflict, "ip", func(d *registry.Device) { d.IP = ip(255) }},
		"another network":   {registry.ErrConflict, "ip", func(d *registry.Device) { d.IP = netip.MustParseAddr("10.9.0.7") }},
		"unknown pool":      {registry.ErrConflict, "pool", func(d *registry.Device) { d.Pool = "none" }},
		"unknown class":     {registry.ErrConflict, "class", func(d *registry.Device) { d.Class = "none" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.pool(nil)
			b.device("van", 3)
			b.grant("van")
			b.must(b.PutDevice(b.ctx, registry.Device{ID: "bus", MACs: []openflow.MAC{mac(2)}, IP: ip(100)}))
			writes := b.store.writes
			d := registry.Device{ID: "car", MACs: []openflow.MAC{mac(1)}, Pool: "main"}
			c.spoil(&d)
			err := b.PutDevice(b.ctx, d)
			refused(t, err, c.kind, c.field)
			if strings.Contains(err.Error(), "secret") {
				t.Fatalf("the error shows the key: %v", err)
			}
			if _, ok := b.Device("car"); ok || b.store.writes != writes {
				t.Fatal("part of the device was taken over")
			}
		})
	}
}

func TestPrintingADeviceHidesItsKey(t *testing.T) {
	d := registry.Device{ID: "car", Key: []byte(strings.Repeat("k", 32))}
	for _, s := range []string{d.String(), d.GoString()} {
		if strings.Contains(s, "kkk") {
			t.Fatal(s)
		}
	}
}
