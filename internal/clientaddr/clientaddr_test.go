package clientaddr

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestClient(t *testing.T) {
	proxies := Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/30"), netip.MustParsePrefix("2001:db8:1::/64")}}
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
		{"192.0.2.1:80", []string{"203.0.113.1:4711"}, "203.0.113.1"}, // as some proxies write it
		{"192.0.2.1:80", []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{"192.0.2.1:80", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"192.0.2.1:80", []string{"203.0.113.1, 192.0.2.2:4711"}, "203.0.113.1"},
		{"192.0.2.1:80", []string{"[203.0.113.1"}, "192.0.2.1"},
		{"@", []string{"203.0.113.1"}, "invalid IP"},
	} {
		// The other header is the client's own.
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.said, "Forwarded": {"for=203.0.113.99"}}}
		if got := proxies.Client(r).String(); got != c.want {
			t.Errorf("%s, %.60q: %s, want %s", c.remote, c.said, got, c.want)
		}
		if got := (Proxies{}).Client(r); got.IsValid() && got != plain(netip.MustParseAddrPort(c.remote).Addr()) {
			t.Errorf("%s, %.60q, with no proxy to trust: %s", c.remote, c.said, got)
		}
	}
}

// TestForwarded checks the addresses in Forwarded (RFC 7239).
func TestForwarded(t *testing.T) {
	proxies := Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/30")}, Header: Forwarded}
	for _, c := range []struct {
		remote string
		said   []string
		want   string
	}{
		{"198.51.100.7:80", []string{"for=203.0.113.1"}, "198.51.100.7"},
		{"192.0.2.1:80", nil, "192.0.2.1"},
		{"192.0.2.1:80", []string{"for=203.0.113.1, for=198.51.100.7;proto=https;by=192.0.2.1"}, "198.51.100.7"},
		{"192.0.2.1:80", []string{"proto=https; For=198.51.100.7"}, "198.51.100.7"},
		{"192.0.2.1:80", []string{"for=203.0.113.1", "for=192.0.2.2"}, "203.0.113.1"},
		{"192.0.2.1:80", []string{`for="203.0.113.1:4711"`}, "203.0.113.1"},
		{"192.0.2.1:80", []string{`for="[2001:db8::17]:4711"`}, "2001:db8::17"},
		{"192.0.2.1:80", []string{`for="[2001:db8::17]"`}, "2001:db8::17"},
		{"192.0.2.1:80", []string{"for=unknown"}, "192.0.2.1"},
		{"192.0.2.1:80", []string{"for=_hidden"}, "192.0.2.1"},
		{"192.0.2.1:80", []string{"by=203.0.113.1"}, "192.0.2.1"},
		{"192.0.2.1:80", []string{"for=203.0.113.1;for=203.0.113.2"}, "192.0.2.1"},
		{"192.0.2.1:80", []string{`for="203.0.113.66`, "for=198.51.100.7"}, "198.51.100.7"}, // the client opens a quotation
		{"192.0.2.1:80", []string{`for="203.0.113.66`, "for=192.0.2.2"}, "192.0.2.2"},
		{"192.0.2.1:80", []string{`for="x, for=203.0.113.66", for=198.51.100.7`}, "198.51.100.7"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"Forwarded": c.said, "X-Forwarded-For": {"203.0.113.99"}}}
		if got := proxies.Client(r).String(); got != c.want {
			t.Errorf("%s, %q: %s, want %s", c.remote, c.said, got, c.want)
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
	f.Add("192.0.2.1:80", `for="[2001:db8::17]:4711";proto=https, for=192.0.2.2`)
	f.Add("192.0.2.1:80", `for="203.0.113.1, for=192.0.2.2;For=x`)
	f.Fuzz(func(t *testing.T, remote, said string) {
		for _, header := range []string{XForwardedFor, Forwarded} {
			proxies := Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Header: header}
			r := &http.Request{RemoteAddr: remote, Header: http.Header{header: {said}}}
			a := proxies.Client(r)
			if b := (Proxies{}).Client(r); a != b && !proxies.Trust(b) {
				t.Errorf("%q, %s: %q: %v instead of %v, which nobody trusted says", remote, header, said, a, b)
			}
		}
	})
}
