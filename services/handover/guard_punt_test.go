package handover

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/handover/registry"
)

func addr4(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// A range is covered exactly, by blocks that do not overlap.
func TestCover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint32Range(0, 1<<32-600).Draw(t, "first")
		n := rapid.Uint32Range(1, 512).Draw(t, "addresses")
		blocks := splitRange(addr4(first), addr4(first+n-1))
		for i := first - min(first, 3); i < first+n+3; i++ {
			in := 0
			for _, b := range blocks {
				if b.Contains(addr4(i)) {
					in++
				}
			}
			want := 0
			if i >= first && i < first+n {
				want = 1
			}
			if in != want {
				t.Fatalf("%v is in %d of %v, want %d", addr4(i), in, blocks, want)
			}
		}
		if len(blocks) > 62 {
			t.Fatalf("%d blocks", len(blocks))
		}
	})
}

// The addresses of a pool's router and server are not assignable.
func TestGiven(t *testing.T) {
	a := netip.MustParseAddr
	for _, tt := range []struct {
		gateway, server string
		out             []string
	}{
		{"10.8.0.1", "", []string{"10.8.0.1"}},
		{"10.8.0.5", "10.8.0.9", []string{"10.8.0.5", "10.8.0.9"}},
		{"10.8.0.9", "10.8.0.5", []string{"10.8.0.5", "10.8.0.9"}},
		{"10.8.0.14", "", []string{"10.8.0.14"}},
		{"10.8.0.200", "", nil},
	} {
		p := registry.Pool{First: a("10.8.0.1"), Last: a("10.8.0.14"), Gateway: a(tt.gateway)}
		if tt.server != "" {
			p.Server = a(tt.server)
		}
		blocks := assignable(p)
		for ip := a("10.8.0.0"); ip.Less(a("10.8.0.16")); ip = ip.Next() {
			in := false
			for _, b := range blocks {
				in = in || b.Contains(ip)
			}
			want := !ip.Less(p.First) && !p.Last.Less(ip)
			for _, x := range tt.out {
				want = want && ip != a(x)
			}
			if in != want {
				t.Errorf("gateway %s, server %q: %v is given out: %v, want %v", tt.gateway, tt.server, ip, in, want)
			}
		}
	}
}
