package packet

import (
	"bytes"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestCompleteChecksum checks that a frame whose checksum was left to the network card becomes
// the frame that its sender would have built, and that any other stays as it is.
func TestCompleteChecksum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src, dst := netip.MustParseAddrPort("10.0.0.1:4000"), netip.MustParseAddrPort("10.0.0.2:80")
		if rapid.Bool().Draw(t, "v6") {
			src, dst = netip.MustParseAddrPort("[2001:db8::1]:4000"), netip.MustParseAddrPort("[2001:db8::2]:80")
		}
		f := Frame{VLAN: uint16(rapid.IntRange(0, 5).Draw(t, "vlan"))}
		payload := rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
		tcp := rapid.Bool().Draw(t, "tcp")
		var whole []byte
		if tcp {
			whole = AppendTCP(nil, f, TCPSegment{Src: src, Dst: dst, Seq: rapid.Uint32().Draw(t, "seq"), Flags: ACK, Payload: payload})
		} else {
			whole = AppendUDP(nil, f, UDPDatagram{Src: src, Dst: dst, Payload: payload})
		}
		h, err := Parse(whole)
		if err != nil {
			t.Fatal(err)
		}
		whole = append(whole, make([]byte, rapid.IntRange(0, 6).Draw(t, "padding"))...)
		if got := bytes.Clone(whole); CompleteChecksum(got, &h) || !bytes.Equal(got, whole) {
			t.Fatalf("a frame with a valid checksum became %x, was %x", got, whole)
		}
		at := h.L4 + 6
		if tcp {
			at = h.L4 + 16
		}
		partial := bytes.Clone(whole)
		be.PutUint16(partial[at:], ^Checksum(pseudoHeader(h.Src, h.Dst, h.Proto, h.End-h.L4)))
		same := bytes.Equal(partial, whole) // a checksum that happens to be the partial one
		if got := bytes.Clone(partial); CompleteChecksum(got, &h) == same || !bytes.Equal(got, whole) {
			t.Fatalf("a partial checksum became %x, want %x", got, whole)
		}
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x55
		if bytes.Equal(damaged, partial) {
			return
		}
		if got := bytes.Clone(damaged); CompleteChecksum(got, &h) || !bytes.Equal(got, damaged) {
			t.Fatalf("a damaged frame became %x, was %x", got, damaged)
		}
	})
}

// TestCompleteChecksumNeedsTheWholePacket checks that frames which were cut short, and
// fragments, stay as they are.
func TestCompleteChecksumNeedsTheWholePacket(t *testing.T) {
	whole := AppendTCP(nil, Frame{}, TCPSegment{
		Src: netip.MustParseAddrPort("10.0.0.1:4000"), Dst: netip.MustParseAddrPort("10.0.0.2:80"), Flags: SYN, Payload: make([]byte, 50),
	})
	h, err := Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	be.PutUint16(whole[h.L4+16:], ^Checksum(pseudoHeader(h.Src, h.Dst, h.Proto, h.End-h.L4)))
	if CompleteChecksum(bytes.Clone(whole[:len(whole)-1]), &h) {
		t.Error("a frame that was cut short")
	}
	part := h
	part.MoreFragments = true
	if CompleteChecksum(bytes.Clone(whole), &part) {
		t.Error("a fragment")
	}
	if !CompleteChecksum(whole, &h) {
		t.Error("the whole packet")
	}
}
