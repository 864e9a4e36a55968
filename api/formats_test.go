package api

import (
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
)

func matches(format, text string) bool {
	return regexp.MustCompile(`^(?:` + Formats[format].Pattern + `)$`).MatchString(text)
}

func TestFormats(t *testing.T) {
	for format, texts := range map[string]struct{ right, wrong string }{
		"ipv4-address": {"0.0.0.0 10.8.0.1 255.255.255.255", "256.0.0.1 1.2.3 1.2.3.4.5 01.2.3.4 ::1 1.2.3.4/8"},
		"ip-address":   {"10.8.0.1 :: ::1 1:: 1:2:3:4:5:6:7:8 2001:db8::1 1::8 FE80::1", "1 ::: 1::2::3 1:2:3:4:5:6:7 1:2:3:4:5:6:7:8:9 12345:: fe80::1%eth0 x::"},
		"ipv4-prefix":  {"10.8.0.0/24 0.0.0.0/0 1.2.3.4/32", "10.8.0.0 10.8.0.0/33 10.8.0.0/ 10.8.0.0/024"},
		"ip-prefix":    {"10.0.0.1 10.0.0.0/8 2001:db8::/64 ::/0 ::1/128", "10.0.0.0/33 ::/129 a 10.0.0.0/8/8"},
		"mac":          {"02:00:00:00:00:01 02-00-00-00-00-aB", "02:00:00:00:00 02:00:00-00:00:01 0200.0000.0001"},
		"dpid":         {"00000000000000a1 0x00000000000000A1 00:00:00:00:00:00:00:a1", "a1 00000000000000g1 00:00:00:00:00:00:a1"},
		"dpid-port":    {"00000000000000a1/3", "00000000000000a1 00000000000000a1/0 edge/3"},
		"switch":       {"edge-1 00000000000000a1 00:00:00:00:00:00:00:a1", "-edge a/b ../x"},
		"switch-port":  {"edge-1/3 00000000000000a1/3", "edge-1 edge/x /3"},
		"place":        {"10.0.0.1 2001:db8::1 02:00:00:00:00:01 edge/3 edge:3 00000000000000a1/1", "here 10.0.0.300 edge/"},
		"go-duration":  {"0s 200ms 1h30m 1.5s 20µs", "5 s -1s 1d 1.s"},
		"event-id":     {"0 18446", "-1 x 12345678901234567890"},
		"port-range":   {"1 443 65535 8000-8099", "0 65536 http 80- 080"},
		"time-or-age":  {"10m 2026-01-31T12:00:00Z 2024-02-29T00:00:00.5+01:00", "2026-02-29T00:00:00Z 2026-02-30T00:00:00Z 2026-01-31 yesterday 2026-01-31T24:00:00Z"},
		"byte":         {"AA== AAA= AAAA AAAAAA==", "A AA AAA A=== AA=A"},
	} {
		for _, text := range strings.Fields(texts.right) {
			if !matches(format, text) {
				t.Errorf("%s refuses %q", format, text)
			}
		}
		for _, text := range strings.Fields(texts.wrong) {
			if matches(format, text) {
				t.Errorf("%s takes %q", format, text)
			}
		}
		if !matches(format, strings.Fields(texts.right)[0]) || matches(format, "") && format != "byte" {
			t.Errorf("%s takes nothing at all", format)
		}
	}
}

// What a pattern lets through can be read by what reads it.
func FuzzFormats(f *testing.F) {
	for _, text := range []string{"10.0.0.1", "1:2::3", "2001:db8::/64", "02:00:00:00:00:01", "1h30m", "2024-02-29T00:00:00Z"} {
		f.Add(text)
	}
	is := func(err error) bool { return err == nil }
	readers := map[string]func(string) bool{
		"ip-address":   func(s string) bool { _, err := netip.ParseAddr(s); return is(err) },
		"ipv4-address": func(s string) bool { a, err := netip.ParseAddr(s); return is(err) && a.Is4() },
		"ipv4-prefix":  func(s string) bool { p, err := netip.ParsePrefix(s); return is(err) && p.Addr().Is4() },
		"mac":          func(s string) bool { m, err := net.ParseMAC(s); return is(err) && len(m) == 6 },
		"go-duration":  func(s string) bool { _, err := time.ParseDuration(s); return is(err) || len(s) > 9 }, // one may be too long for 64 bits
		"time-or-age": func(s string) bool {
			_, err := time.Parse(time.RFC3339, s)
			return is(err) || !strings.Contains(s, "T")
		},
	}
	f.Fuzz(func(t *testing.T, text string) {
		for format, read := range readers {
			if matches(format, text) && !read(text) {
				t.Errorf("%s lets %q through", format, text)
			}
		}
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !(a.Is6() && strings.Contains(text, ".")) && !matches("ip-address", text) {
			t.Errorf("ip-address refuses %q", text)
		}
	})
}
