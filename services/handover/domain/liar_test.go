package domain

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

// lyingAPI answers queries with a and agrees to everything else.
func lyingAPI(a Answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, string(KindQuery)) {
			_ = json.NewEncoder(w).Encode(a)
			return
		}
		var claim Claim
		_ = json.NewDecoder(r.Body).Decode(&claim)
		_ = json.NewEncoder(w).Encode(Prepared{Move: claim.Move, Carry: true})
	})
}

func (d *testDomain) lies(a Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handler = lyingAPI(a)
}

// b claims to have devices that it does not have. No device ever gets an address of another, and
// one whose home answers gets its own.
func TestLyingAnswers(t *testing.T) {
	t.Parallel()
	strangerMAC, ofC := openflow.MAC{2, 6, 6, 6, 6, 6}, openflow.MAC{2, 5, 5, 5, 5, 5}
	claim := func(v Visitor, host string) Answer { return Answer{Known: true, Visitor: &v, Host: host} }
	visitor := func(home, ip string, macs ...openflow.MAC) Visitor {
		return Visitor{Home: home, Device: "bait", MACs: macs, IP: netip.MustParseAddr(ip)}
	}
	for _, x := range []struct {
		name string
		lie  func(mac openflow.MAC) Answer
	}{
		{"its own device, with an address of c", func(m openflow.MAC) Answer { return claim(visitor("b", "10.3.0.9", m), "b") }},
		{"its own device, with an address of a", func(m openflow.MAC) Answer { return claim(visitor("b", "10.1.0.9", m), "b") }},
		{"a's device, with an address of b", func(m openflow.MAC) Answer { return claim(visitor("a", "10.2.0.9", m), "b") }},
		{"c's device", func(m openflow.MAC) Answer { return claim(visitor("c", "10.3.0.9", m), "b") }},
		{"another device", func(openflow.MAC) Answer { return claim(visitor("b", "10.2.0.9", strangerMAC), "b") }},
		{"a device with no address", func(m openflow.MAC) Answer {
			return claim(Visitor{Home: "b", Device: "x", MACs: []openflow.MAC{m}}, "b")
		}},
		{"a device, but not which", func(openflow.MAC) Answer { return Answer{Known: true, Host: "b"} }},
		{"a place that is none", func(m openflow.MAC) Answer { return claim(visitor("b", "10.2.0.9", m), "\n") }},
		{"an address of nobody's", func(m openflow.MAC) Answer { return claim(visitor("b", "203.0.113.77", m), "b") }},
		{"an address that c's network uses", func(m openflow.MAC) Answer { return claim(visitor("b", "10.2.0.99", m), "b") }},
		{"its own device, with a hardware address of c's", func(m openflow.MAC) Answer { return claim(visitor("b", "10.2.0.9", m, ofC), "b") }},
	} {
		t.Run(x.name, func(t *testing.T) {
			ds := newDomains(t, 3, quick, everybody)
			a, b, c := ds[0], ds[1], ds[2]
			mac, id := a.device(1, nil)
			_, own := c.device(1, func(d *fakeDevice) { d.MACs = []openflow.MAC{ofC} })
			c.host.taken[netip.MustParseAddr("10.2.0.99")] = true
			before := c.addressOf(own)
			b.lies(x.lie(mac))
			ip, err := c.dhcp(mac, sign(mac, "secret"), waitLimit)
			wantAddress(t, ip, err, a.addressOf(id))
			settlesIn(t, c, id+"@a", ip)
			// A device that only the liar claims gets nothing from it.
			b.lies(x.lie(strangerMAC))
			if x.name == "another device" {
				b.lies(x.lie(mac))
				return
			}
			if ip, err := c.dhcp(strangerMAC, nil, waitLimit); !errors.Is(err, errNoAddress) {
				t.Errorf("a stranger got %v: %v", ip, err)
			}
			if k, ok := c.host.DeviceByMAC(strangerMAC); ok {
				t.Errorf("the stranger is known as %+v", k)
			}
			if k, ok := c.host.DeviceByMAC(ofC); !ok || k.LocalID("c") != own || k.IP != before {
				t.Errorf("c's own device is known as %+v", k)
			}
		})
	}
}

// b assigns one address of its own to two devices that nobody else knows: only one of them gets
// it.
func TestOneAddressForTwoDevices(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	b, c := ds[0], ds[1]
	bait := netip.MustParseAddr("10.1.0.88")
	first, second := openflow.MAC{2, 6, 6, 6, 6, 1}, openflow.MAC{2, 6, 6, 6, 6, 2}
	for _, x := range []struct {
		mac  openflow.MAC
		id   string
		want error
	}{{first, "bait-1", nil}, {second, "bait-2", errNoAddress}} {
		v := Visitor{Home: b.name, Device: x.id, MACs: []openflow.MAC{x.mac}, IP: bait}
		b.lies(Answer{Known: true, Visitor: &v, Host: b.name})
		ip, err := c.dhcp(x.mac, nil, waitLimit)
		if !errors.Is(err, x.want) || err == nil && ip != bait {
			t.Errorf("%s got %v, %v; want error %v", x.id, ip, err, x.want)
		}
	}
	if k, ok := c.host.DeviceByMAC(second); ok {
		t.Errorf("the second is known as %+v", k)
	}
}

func settlesIn(t testing.TB, d *testDomain, id string, ip netip.Addr) {
	t.Helper()
	k, ok := d.host.Device(id)
	if !ok || k.IP != ip || !k.Here {
		t.Errorf("%s: %+v", id, k)
	}
}

// b says that it has a device of a, which is really at a: a is asked and contradicts.
func TestHomesWordCounts(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 3, quick, everybody)
	a, b, c := ds[0], ds[1], ds[2]
	mac, id := a.device(1, nil)
	k, _ := a.host.Device(id)
	b.lies(Answer{Known: true, Visitor: &k.Visitor, Host: "b"})
	ip, err := c.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	eventually(t, "it is known to come from its home", func() bool {
		r, ok := c.service().Record(id + "@a")
		return ok && r.Upstream == "a"
	})
}

// a is down, and b says that it has a's device, with an address that b may bring. That is what
// transit permits. If a second domain says the same, it cannot be decided which is right, and
// neither is believed.
func TestContradictionWithoutTheHome(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 4, quick, everybody)
	a, b, c, d := ds[0], ds[1], ds[2], ds[3]
	mac, id := a.device(1, nil)
	k, _ := a.host.Device(id)
	a.shut()
	b.lies(Answer{Known: true, Visitor: &k.Visitor, Host: "b"})
	d.lies(Answer{Known: true, Visitor: &k.Visitor, Host: "d"})
	if ip, err := c.dhcp(mac, sign(mac, "secret"), waitLimit); !errors.Is(err, errNoAddress) {
		t.Errorf("got %v: %v", ip, err)
	}
	if st := c.state(); strings.Contains(st, id) {
		t.Errorf("something is left: %s", st)
	}
}

// Whatever a neighbour answers, the result is an error or a value, and never larger than the
// bound.
func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	_, id := a.device(1, nil)
	for name, h := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"endless": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
		"another move": func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(Prepared{Move: newToken(), Carry: true})
		},
		"somewhere": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, a.url, http.StatusTemporaryRedirect) },
		"unknown code": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(409)
			_, _ = w.Write([]byte(`{"code":"nonsense"}`))
		},
		"wrong status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = w.Write([]byte(`{"code":"replay"}`))
		},
		"no JSON":       func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"a fault of it": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			b.mu.Lock()
			b.handler = h
			b.mu.Unlock()
			if err := a.service().Origin.Announce(t.Context(), id, "b", at(b)); err == nil || codeOf(err) != "" {
				t.Errorf("announced: %v", err)
			}
			if got := reach(ds[:1], a, id); len(got) != 1 || got[0] != "a" {
				t.Errorf("packets come out in %v", got)
			}
		})
	}
}
