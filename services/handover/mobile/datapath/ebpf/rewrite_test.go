package ebpf

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/openflow"
)

// redirected is what a program returns that sends a frame elsewhere.
const redirected = 7 // TC_ACT_REDIRECT

// TestRewritingAgrees gives random frames to the programs in the kernel and to
// the model.
func TestRewritingAgrees(t *testing.T) {
	vni, nic := openflow.MAC{2, 0, 0, 0, 0, 1}, openflow.MAC{2, 0, 0, 0, 0, 2}
	s, receive := loaded(t, nic)
	if err := s.maps.Choices.Put(uint32(0), datapathChoice{Send: 1, Mac: nic, Receive: 1}); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		in := randomFrame(t, vni, nic)
		want := slices.Clone(in)
		outbound(want, vni, nic)
		verdict, got, err := s.send.Test(in)
		if err != nil || verdict != redirected {
			t.Fatalf("out: verdict %d, %v", verdict, err)
		}
		if !bytes.Equal(got, want) && !sameButForZero(got, want) {
			t.Fatalf("out\n%x\nbecame\n%x, want\n%x", in, got, want)
		}

		copy(in, nic[:]) // for the device
		copy(in[6:], []byte{2, 9, 9, 9, 9, 9})
		want = slices.Clone(in)
		inbound(want, vni, nic)
		verdict, got, err = receive.Test(in)
		switch {
		case err != nil:
			t.Fatal(err)
		case in[12] == 0x88 && in[13] == 0x8e, isDHCP(in):
			if verdict == redirected {
				t.Fatalf("a frame that stays with the interface was passed on: %x", in)
			}
		case verdict != redirected || !bytes.Equal(got, want):
			t.Fatalf("in\n%x\nbecame (%d)\n%x, want\n%x", in, verdict, got, want)
		}
	})
}

// randomFrame returns a frame that is mostly close to what the programs match.
func randomFrame(t *rapid.T, macs ...openflow.MAC) []byte {
	mac := func(name string) []byte {
		m := rapid.SampledFrom(append(macs, openflow.MAC{2, 3, 4, 5, 6, 7})).Draw(t, name)
		return m[:]
	}
	b := append(mac("dst"), mac("src")...)
	switch rapid.SampledFrom([]string{"arp", "nd", "ip", "any"}).Draw(t, "kind") {
	case "arp":
		b = append(b, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, byte(rapid.IntRange(1, 2).Draw(t, "op")))
		b = append(append(append(append(b, mac("sha")...), 10, 0, 0, 1), mac("tha")...), 10, 0, 0, 2)
	case "nd":
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 64, rapid.SampledFrom([]byte{58, 58, 58, 17, 0}).Draw(t, "next"), 255)
		b = append(b, rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "addresses")...)
		kind := rapid.ByteRange(132, 138).Draw(t, "type")
		b = append(append(b, kind, 0), rapid.SliceOfN(rapid.Byte(), 2, 2).Draw(t, "checksum")...)
		b = append(b, make([]byte, rapid.SampledFrom([]int{4, 12, 20}).Draw(t, "fixed"))...)
		for range rapid.IntRange(0, 6).Draw(t, "options") {
			size := rapid.ByteRange(0, 3).Draw(t, "units")
			body := append(mac("option"), make([]byte, 16)...)[:max(int(size)*8-2, 6)]
			b = append(append(b, rapid.ByteRange(0, 3).Draw(t, "option type"), size), body...)
		}
		b = b[:rapid.IntRange(min(len(b), 54), len(b)).Draw(t, "cut")]
	case "ip":
		b = append(b, 0x08, 0x00, rapid.ByteRange(0x45, 0x46).Draw(t, "header"), 0, 0, 60, 0, 0, rapid.SampledFrom([]byte{0, 0x40, 0x1f}).Draw(t, "fragment"), 0)
		b = append(append(b, 64, 17, 0, 0), make([]byte, 8)...)
		b = append(b, 0, 67, 0, rapid.ByteRange(67, 69).Draw(t, "port"), 0, 68, 0, 68)
	default:
		b = append(b, rapid.SliceOfN(rapid.Byte(), 2, 80).Draw(t, "rest")...)
	}
	return append(b, make([]byte, max(60-len(b), 0))...)
}

// isDHCP reports whether a frame is for a DHCP client.
func isDHCP(b []byte) bool {
	if b[12] != 8 || b[13] != 0 || b[23] != 17 || b[20]&0x1f != 0 || b[21] != 0 {
		return false
	}
	at := 14 + int(b[14]&0xf)*4 + 2
	return at+2 <= len(b) && b[at] == 0 && b[at+1] == 68
}

// sameButForZero reports whether only an ICMPv6 checksum differs, and only in which of the two
// zeroes of one's complement it is.
func sameButForZero(a, b []byte) bool {
	const at = 56
	zero := func(p []byte) bool { return len(p) > at+1 && p[at] == p[at+1] && (p[at] == 0 || p[at] == 0xff) }
	return zero(a) && zero(b) && bytes.Equal(a[:at], b[:at]) && bytes.Equal(a[at+2:], b[at+2:])
}
