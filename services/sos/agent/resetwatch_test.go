package agent

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/logtest"
)

// TestClosingIsQuiet checks that an agent that is closed logs no warning.
func TestClosingIsQuiet(t *testing.T) {
	var log logtest.Log
	cfg := testConfig(addrX)
	cfg.Log = log.Logger()
	a, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	before := log.String()
	a.Close()
	if said := strings.TrimPrefix(log.String(), before); strings.Contains(said, "WARN") {
		t.Error(said)
	}
}

// FuzzParseHeading checks that any bytes from a packet socket are parsed or refused.
func FuzzParseHeading(f *testing.F) {
	v4 := make([]byte, 40)
	v4[0], v4[33] = 0x45, flagSYN
	f.Add(v4, false)
	f.Add(append([]byte{0x4f}, v4...), false)
	f.Add([]byte{0x41}, false)
	v6 := make([]byte, 60)
	v6[0], v6[53] = 0x60, flagRST
	f.Add(v6, true)
	f.Add(v6[:50], true)
	f.Fuzz(func(t *testing.T, b []byte, v6 bool) {
		h, ok := parseTCPHeader(b, v6)
		if ok && (h.from.Addr().Is4() == v6 || h.to.Addr().Is4() == v6) {
			t.Errorf("%v to %v, v6 %v", h.from, h.to, v6)
		}
	})
}

func TestParseHeading(t *testing.T) {
	b := []byte{
		0x46, 0, 0, 44, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1, // with an IP option
		0x12, 0x34, 0, 80, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, flagRST, 0, 0, 0, 0, 0, 0,
	}
	want := tcpHeader{netip.MustParseAddrPort("10.0.0.1:4660"), netip.MustParseAddrPort("10.0.0.2:80"), 7, flagRST}
	if h, ok := parseTCPHeader(b, false); !ok || h != want {
		t.Errorf("%+v, %v; want %+v", h, ok, want)
	}
	for n := range 38 {
		if _, ok := parseTCPHeader(b[:n], false); ok {
			t.Errorf("%d bytes are taken for a segment", n)
		}
	}
}
