package clientaddr

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestClient(t *testing.T) {
	proxies := Proxies{netip.MustParsePrefix("192.0.2.0/30"), netip.MustParsePrefix("2001:db8:1::/64")}
	for _, c := range []struct {
		remote string
		said   []string
		want   string
	}{
		{"198.51.100.7:80", nil, "198.51.100.7"},
		{"198.51.100.7:80", []string{"203.0.113.1"}, "198.51.100.7"}, // nobody that is trusted says so
		{"[::ffff:192.0.2.1]:80", []string{"203.0.113.1"}, "203.0.113.1"},
		{"192.0.2.1:80", nil, "192.0.2.1"},
		{"192.0.2.1:80", []string{""}, "192.0.2.1"},
		{"192.0.2.1:80", []string{"203.0.113.1, 198.51.100.7"}, "198.51.100.7"}, // the client has written the first
		{"192.0.2.1:80", []string{"203.0.113.1", "198.51.100.7 , 192.0.2.2"}, "198.51.100.7"},
		{"192.0.2.1:80", []string{"203.0.113.1", "192.0.2.2"}, "203.0.113.1"},
		{"192.0.2.1:80", []string{"192.0.2.3"}, "192.0.2.3"},
		{"192.0.2.1:80", []string{"203.0.113.1, unknown"}, "192.0.2.1"},
		{"192.0.2.1:80", []string{"203.0.113.1,"}, "192.0.2.1"},
		{"[2001:db8:1::5%eth0]:80", []string{"::ffff:203.0.113.1"}, "203.0.113.1"},
		{"192.0.2.1:80", []string{"203.0.113.1," + strings.Repeat("192.0.2.2,", 1000) + "192.0.2.2"}, "192.0.2.2"},
		{"@", []string{"203.0.113.1"}, "invalid IP"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.said}}
		if got := proxies.Client(r).String(); got != c.want {
			t.Errorf("%s, %.60q: %s, want %s", c.remote, c.said, got, c.want)
		}
		if got := Proxies(nil).Client(r); got.IsValid() && got != plain(netip.MustParseAddrPort(c.remote).Addr()) {
			t.Errorf("%s, %.60q, with no proxy to trust: %s", c.remote, c.said, got)
		}
	}
}

func TestSource(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8::1%eth0": "2001:db8::/64",
	} {
		if got := Source(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

func FuzzClient(f *testing.F) {
	f.Add("192.0.2.1:80", "203.0.113.1, 192.0.2.2")
	f.Add("[2001:db8::1%x]:1", ",,")
	proxies := Proxies{netip.MustParsePrefix("192.0.2.0/24")}
	f.Fuzz(func(t *testing.T, remote, said string) {
		r := &http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": {said}}}
		a := proxies.Client(r)
		if b := Proxies(nil).Client(r); a != b && !proxies.Trust(b) {
			t.Errorf("%q, %q: %v instead of %v, which nobody trusted says", remote, said, a, b)
		}
	})
}
