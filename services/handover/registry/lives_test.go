package registry_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// snapshot returns all that a registry knows, as text.
func snapshot(b *bench) string {
	text, err := json.MarshalIndent(map[string]any{
		"classes": b.ClassItems.Values(), "pools": b.Pools(), "devices": b.Devices(), "leases": b.Leases(),
	}, "", " ")
	b.must(err)
	return string(text)
}

func TestUnknownDevicesAreLearned(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	_, err := b.Learn(mac(9))
	b.fails(err, registry.ErrUnknown)
	b.pool(func(p *registry.Pool) { p.Learn = true })
	_, err = b.Learn(openflow.MAC{1})
	b.fails(err, registry.ErrInvalid)
	d, err := b.Learn(mac(9))
	b.must(err)
	if d.ID != "mac-020000000009" || !d.Learned || d.Pool != "main" {
		t.Fatalf("learned %+v", d)
	}
	if _, err := b.Offer(d.ID, netip.Addr{}, network.PortRef{}); err != nil || b.store.writes != 2 || len(b.Devices()) != 0 {
		t.Fatalf("an offer was written: %v", err)
	}
	l := b.grant(d.ID)
	b.restart()
	if again, err := b.Learn(mac(9)); err != nil || again.ID != d.ID {
		t.Fatalf("learned again: %v, %v", again, err)
	}
	if again := b.grant(d.ID); again.IP != l.IP {
		t.Fatalf("got %v after a restart, had %v", again.IP, l.IP)
	}
	// A learned device gives way to a registered one, but not while it has a lease.
	car := registry.Device{ID: "car", MACs: []openflow.MAC{mac(9)}}
	refused(t, b.PutDevice(b.ctx, car), registry.ErrConflict, "macs[0]")
	b.must(b.Release(b.ctx, d.ID))
	b.must(b.PutDevice(b.ctx, car))
	b.restart()
	if ids := deviceIDs(b); !slices.Equal(ids, []string{"car"}) {
		t.Fatalf("devices %v", ids)
	}
}

func TestLearnedDevicesAreForgotten(t *testing.T) {
	b := newBench(t)
	b.pool(func(p *registry.Pool) { p.Learn = true })
	asked, err := b.Learn(mac(1))
	b.must(err)
	_, err = b.Offer(asked.ID, netip.Addr{}, network.PortRef{})
	b.must(err)
	took, err := b.Learn(mac(2))
	b.must(err)
	b.grant(took.ID)

	b.clock.add(31 * time.Second)
	b.expire()
	if _, ok := b.Device(asked.ID); ok {
		t.Fatal("a device that only asked is remembered")
	}
	b.clock.add(time.Minute)
	if ended := b.expire(); len(ended) != 1 || ended[0].Device != took.ID {
		t.Fatalf("ended: %+v", ended)
	}
	b.clock.add(time.Hour)
	b.expire()
	if _, ok := b.Device(took.ID); ok || len(b.Devices()) != 0 {
		t.Fatal("a device whose lease ended long ago is remembered")
	}
	entries, err := b.store.List(b.ctx, "handover/")
	b.must(err)
	for _, e := range entries {
		if strings.Contains(e.Key, "mac-") {
			t.Errorf("left in the store: %s", e.Key)
		}
	}
}

func TestStrangersAreBounded(t *testing.T) {
	b := newBench(t)
	b.pool(func(p *registry.Pool) { p.Learn = true })
	var err error
	n := 0
	for ; err == nil && n < 10000; n++ {
		_, err = b.Learn(openflow.MAC{2, 1, 0, 0, byte(n >> 8), byte(n)})
	}
	b.fails(err, registry.ErrFull)
	b.clock.add(31 * time.Second)
	b.expire()
	_, err = b.Learn(mac(1))
	b.must(err)
}

func visitor() registry.Device {
	return registry.Device{ID: "bus@east", MACs: []openflow.MAC{mac(7)}, Home: "east", Pool: "east"}
}

var abroad = netip.MustParseAddr("10.9.0.7")

func eastPool() registry.Pool {
	return registry.Pool{
		Name: "east", Home: "east", Prefix: prefix("10.9.0.0/16"),
		Gateway: netip.MustParseAddr("10.9.0.1"), LeaseTime: time.Minute,
	}
}

func TestVisitorsBringTheirAddress(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.must(b.PutPool(b.ctx, eastPool()))
	b.must(b.Adopt(b.ctx, visitor(), abroad))
	b.must(b.Adopt(b.ctx, visitor(), abroad)) // the message may arrive twice
	if got, err := b.Offer("bus@east", ip(10), network.PortRef{}); err != nil || got != abroad {
		t.Fatalf("the visitor is offered %v, %v", got, err)
	}
	_, err := b.Grant(b.ctx, "bus@east", registry.Claim{IP: ip(10)})
	b.fails(err, registry.ErrNotYours)
	if l := b.grant("bus@east"); l.IP != abroad || l.Pool != "east" {
		t.Fatalf("the visitor got %+v", l)
	}
	b.restart()
	if d, ok := b.DeviceByIP(abroad); !ok || d.Home != "east" {
		t.Fatalf("%v belongs to %v", abroad, d)
	}
	b.clock.add(time.Minute)
	if ended := b.expire(); len(ended) != 1 || ended[0].Device != "bus@east" {
		t.Fatalf("ended: %+v", ended)
	}
	b.clock.add(10 * time.Minute)
	b.expire()
	if _, ok := b.Device("bus@east"); ok {
		t.Fatal("the visitor is remembered for ever")
	}
}

func TestVisitorsThatNeverCome(t *testing.T) {
	b := newBench(t)
	b.must(b.PutPool(b.ctx, eastPool()))
	b.must(b.Adopt(b.ctx, visitor(), abroad))
	b.clock.add(10 * time.Minute)
	if ended := b.expire(); len(ended) != 1 || ended[0].IP != abroad || !ended[0].Released {
		t.Fatalf("ended: %+v", ended)
	}
	if len(b.Devices()) != 0 {
		t.Fatal("still expected")
	}
}

func TestVisitorsGetNothingOfOurs(t *testing.T) {
	cases := map[string]struct {
		kind  error
		field string
		ip    netip.Addr
		spoil func(*registry.Device)
	}{
		"address of our pool":    {registry.ErrConflict, "ip", ip(50), func(d *registry.Device) { d.Pool = "" }},
		"address of a device":    {registry.ErrConflict, "ip", ip(10), func(d *registry.Device) { d.Pool = "" }},
		"address of a visitor":   {registry.ErrConflict, "ip", netip.MustParseAddr("10.9.0.8"), nil},
		"its router's address":   {registry.ErrConflict, "ip", netip.MustParseAddr("10.9.0.1"), nil},
		"address outside":        {registry.ErrConflict, "ip", netip.MustParseAddr("10.7.0.1"), nil},
		"our pool":               {registry.ErrConflict, "pool", abroad, func(d *registry.Device) { d.Pool = "main" }},
		"MAC of our device":      {registry.ErrConflict, "macs[0]", abroad, func(d *registry.Device) { d.MACs[0] = mac(1) }},
		"name of our device":     {registry.ErrConflict, "home", abroad, func(d *registry.Device) { d.ID = "car" }},
		"name of another's":      {registry.ErrConflict, "home", abroad, func(d *registry.Device) { d.ID = "tram"; d.Home, d.Pool = "west", "" }},
		"no home":                {registry.ErrInvalid, "home", abroad, func(d *registry.Device) { d.Home = "" }},
		"no address":             {registry.ErrInvalid, "ip", netip.Addr{}, nil},
		"broadcast as address":   {registry.ErrInvalid, "ip", netip.MustParseAddr("255.255.255.255"), nil},
		"loopback as an address": {registry.ErrInvalid, "ip", netip.MustParseAddr("127.0.0.1"), nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.pool(nil)
			b.must(b.PutPool(b.ctx, eastPool()))
			b.device("car", 1)
			b.grant("car")
			b.must(b.Adopt(b.ctx, registry.Device{ID: "tram", MACs: []openflow.MAC{mac(8)}, Home: "east"}, netip.MustParseAddr("10.9.0.8")))
			before := snapshot(b)
			d := visitor()
			if c.spoil != nil {
				c.spoil(&d)
			}
			refused(t, b.Adopt(b.ctx, d, c.ip), c.kind, c.field)
			if after := snapshot(b); after != before {
				t.Fatalf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

func TestALeaseThatWasNotWrittenIsNotGranted(t *testing.T) {
	for name, fail := range map[string]struct{ before, after bool }{"not written": {before: true}, "written, but not said so": {after: true}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.pool(nil)
			b.device("a", 1)
			b.device("b", 2)
			b.store.fail(fail.before, fail.after)
			_, err := b.Grant(b.ctx, "a", registry.Claim{IP: ip(10)})
			b.fails(err, errStore)
			if l, ok := b.Lease("a"); ok {
				t.Fatalf("granted %+v", l)
			}
			b.store.fail(false, false)
			_, err = b.Grant(b.ctx, "b", registry.Claim{IP: ip(10)})
			b.fails(err, registry.ErrTaken) // a may have the address after a restart
			_, err = b.Grant(b.ctx, "a", registry.Claim{IP: ip(10)})
			b.must(err)
			b.restart()
			if l, _ := b.Lease("a"); l.IP != ip(10) {
				t.Fatalf("lease %+v", l)
			}
		})
	}
}

func TestExpireTriesAgain(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("a", 1)
	b.grant("a")
	b.clock.add(time.Hour)
	b.store.fail(true, false)
	if ended, err := b.Expire(b.ctx, b.clock.now()); err == nil || len(ended) != 0 {
		t.Fatalf("ended %+v, %v", ended, err)
	}
	b.store.fail(false, false)
	if ended := b.expire(); len(ended) != 1 {
		t.Fatalf("ended %+v", ended)
	}
}

// Conflicting stored data are in force only once, and data that cannot be read are ignored.
func TestLoadLeavesOutWhatContradicts(t *testing.T) {
	device := func(id string, m byte, more string) string {
		return `{"value":{"id":"` + id + `","macs":["` + mac(m).String() + `"],"pool":"main"` + more + `}}`
	}
	lease := func(id string) string {
		return `{"device":"` + id + `","ip":"10.8.0.10","expires":"2026-11-21T13:00:00Z","granted":"2026-11-21T12:00:00Z"}`
	}
	for name, c := range map[string]struct {
		entries map[string]string
		devices []string
		leased  int
	}{
		"one MAC, two devices":    {map[string]string{"devices/a": device("a", 1, ""), "devices/b": device("b", 1, "")}, []string{"a"}, 0},
		"one binding, two":        {map[string]string{"devices/a": device("a", 1, `,"ip":"10.8.0.9"`), "devices/b": device("b", 2, `,"ip":"10.8.0.9"`)}, []string{"a"}, 0},
		"one address, two leases": {map[string]string{"devices/a": device("a", 1, ""), "devices/b": device("b", 2, ""), "leases/a": lease("a"), "leases/b": lease("b")}, []string{"a", "b"}, 1},
		"bound and leased":        {map[string]string{"devices/a": device("a", 1, ""), "devices/b": device("b", 2, `,"ip":"10.8.0.10"`), "leases/a": lease("a")}, []string{"a", "b"}, 0},
		"lease of nobody":         {map[string]string{"leases/a": lease("a")}, nil, 0},
		"not JSON":                {map[string]string{"devices/a": "{", "declined/ten": `{"device":"a"}`}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.pool(nil)
			b.end()
			for k, v := range c.entries {
				b.must(b.store.Put(b.ctx, "handover/"+k, []byte(v)))
			}
			for range 2 { // the second time the store has what is in force
				b.restart()
				if ids := deviceIDs(b); !slices.Equal(ids, c.devices) || len(b.Leases()) != c.leased {
					t.Errorf("devices %v, leases %v", ids, b.Leases())
				}
			}
		})
	}
}

func TestVisitorsAreBounded(t *testing.T) {
	b := newBench(t)
	var err error
	n := 0
	for ; err == nil && n < 1<<15; n++ {
		d := registry.Device{ID: fmt.Sprintf("v%d@east", n), Home: "east", MACs: []openflow.MAC{{2, 1, 0, 0, byte(n >> 8), byte(n)}}}
		err = b.Adopt(b.ctx, d, netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)}))
	}
	b.fails(err, registry.ErrFull)
	b.pool(nil)
	b.device("car", 1) // our own have room
}
