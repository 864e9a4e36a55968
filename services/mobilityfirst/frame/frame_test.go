package frame

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// hello returns a hello with distinguishable bytes.
var (
	hello    = Hello{Key: [32]byte{31: 3}, Number: 4, MAC: [6]byte{5: 5}, Challenge: 6, Signature: [64]byte{63: 7}}
	helloHex = strings.Repeat("00", 31) + "03 0000000000000004 000000000005 0000000000000006 " + strings.Repeat("00", 63) + "07"
)

// The encodings match those of the original release byte for byte.
func TestLayouts(t *testing.T) {
	for _, x := range []struct {
		frame Frame
		want  string
	}{
		{&Data{Sequence: 2, Hop: 3, Payload: []byte("ab")}, "00000000 00000002 00000002 00000003 6162"},
		{&CSYN{Hop: 7, Packets: 9}, "00000001 00000007 00000009"},
		{&CACK{Hop: 7, Packets: 9, Received: Bitmap{0x81, 0x01}}, "00000002 00000007 00000009 8101"},
		{&CACK{Hop: 7, Packets: 8}, "00000002 00000007 00000008 0000"},
		{&Probe{Source: 1, Destination: 2, Sequence: 3}, "00000003 00000001 00000002 00000003"},
		{&Probe{Source: 1, Destination: 2, Sequence: 3, Ack: true}, "00000004 00000001 00000002 00000003"},
		{
			&LSA{Sender: 1, Source: 2, Destination: 3, Sequence: 4, Neighbours: []Neighbour{{5, 6, 7}, {8, 9, 10}}},
			"00000005 00000001 00000002 00000003 00000004 00000002 00000005 00000008 00000006 00000009 00000007 0000000a",
		},
		{&Associate{Client: 1, Host: 2, Weight: 3}, "00000006 00000001 00000002 0003"},
		{&Deassociate{Entity: 1, Host: 2}, "00000007 00000001 00000002"},
		{&StreamData{Stream: 1, Number: 2, Payload: []byte("ab")}, "00000010 0000000000000001 0000000000000002 0002 6162"},
		{&StreamData{Stream: 1, Number: 2, Blocked: true, Payload: []byte("ab")}, "00000010 0000000000000001 4000000000000002 0002 6162"},
		{&StreamData{Stream: 1, Number: 2, Fresh: true, Payload: []byte("ab")}, "00000010 0000000000000001 8000000000000002 0002 6162"},
		{
			&StreamAck{Stream: 1, Next: 4, Taken: 3, Limit: 68, Ranges: []Range{{Skip: 1, Count: 2}, {Skip: 3, Count: 4}}},
			"00000011 0000000000000001 0000000000000004 0000000000000003 0000000000000044 02 00010002 00030004",
		},
		{&StreamQuery{Stream: 1}, "00000012 0000000000000001"},
		{&StreamReset{Stream: 1, Reason: ResetTooLarge, Taken: 5}, "00000013 0000000000000001 00000002 0000000000000005"},
		{&hello, "00000014 " + helloHex},
		{&PathRequest{ID: 1, Destination: GUID{19: 2}, Service: Multihoming, Back: 9, Forth: 10, Lease: 60_000, Hello: hello}, "00000015 0000000000000001 " + strings.Repeat("00", 19) + "02 0004 0009 000a 0000ea60 " + helloHex},
		{&PathGrant{Label: 7, Lease: 30_000, Token: 9, Instance: 5, Hello: hello}, "00000016 0007 00007530 0000000000000009 0000000000000005 " + helloHex},
		{
			&PathConfirm{Source: GUID{19: 1}, Destination: GUID{19: 2}, Token: 9, Stream: 3},
			"00000017 " + strings.Repeat("00", 19) + "01 " + strings.Repeat("00", 19) + "02 0000000000000009 0000000000000003",
		},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(x.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := x.frame.AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("%v is %x, want %x", x.frame.Type(), got, want)
		}
		padded := append(want, make([]byte, max(60-len(want), 1))...)
		if x.frame.Type() == TypeData || x.frame.Type() == TypeStreamData {
			padded[len(want)] = 0xee // behind the payload
		}
		got, err := Parse(padded)
		if err != nil {
			t.Errorf("%v: %v", x.frame.Type(), err)
			continue
		}
		if again := got.AppendTo(nil); !bytes.Equal(again, want) {
			t.Errorf("%v, read and written, is %x, want %x", x.frame.Type(), again, want)
		}
		for n := range want {
			if _, err := Parse(want[:n]); !errors.Is(err, ErrShort) {
				t.Errorf("%d bytes of %v: %v", n, x.frame.Type(), err)
			}
		}
	}
	if _, err := Parse([]byte{0, 0, 0, 8}); !errors.Is(err, ErrType) {
		t.Errorf("type 8: %v", err)
	}
}

func TestRoutingLayout(t *testing.T) {
	h := RoutingHeader{
		Version: 1, Service: Multicast | DelayTolerant, Protocol: 2, ChunkSize: 0x01020304,
		Source: Address{GUID: GUID{0: 0xaa, 19: 0xab}, NA: 5}, Destination: Address{GUID: GUID{0: 0xba, 19: 0xbb}, NA: 6},
		Extensions: []Extension{{Service: Compute, Options: 7, Body: []byte{0, 0, 0, 42}}, {Service: ContentRequest}},
	}
	b, err := h.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	zeros := strings.Repeat("00", 18)
	want := "01 8009 02 004c 0000 01020304 aa" + zeros + "ab 00000005 ba" + zeros + "bb 00000006" +
		"0010 0046 0007 0000002a" + "0200 0000 0000"
	if got := hex.EncodeToString(b); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestTransportLayout(t *testing.T) {
	h := TransportHeader{Sequence: 1, Size: 2, Packets: 3, Start: 4, End: 5, Kind: 6, Flags: 7, Reliability: ReliabilityACK, Offset: 8, Congestion: 9, Window: 10}
	const want = "000000010000000200000003" + "00040005" + "6702" + "00080009000a"
	if got := hex.EncodeToString(h.AppendTo(nil)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Contradictory input is rejected.
func TestRoutingRefused(t *testing.T) {
	h := RoutingHeader{Extensions: []Extension{{Service: Compute, Body: make([]byte, 4)}, {}}}
	whole, err := h.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"short":                      {func(b []byte) []byte { return b[:59] }, ErrShort},
		"payload inside":             {func(b []byte) []byte { be.PutUint16(b[4:], 59); return b }, ErrLayout},
		"payload beyond":             {func(b []byte) []byte { be.PutUint16(b[4:], 200); return b }, ErrShort},
		"no room for extensions":     {func(b []byte) []byte { be.PutUint16(b[4:], 62); return b }, ErrLayout},
		"next is the same":           {func(b []byte) []byte { be.PutUint16(b[62:], 60); return b }, ErrLayout},
		"next is before":             {func(b []byte) []byte { be.PutUint16(b[72:], 60); return b }, ErrLayout},
		"next is beyond":             {func(b []byte) []byte { be.PutUint16(b[62:], 77); return b }, ErrLayout},
		"next leaves no room":        {func(b []byte) []byte { be.PutUint16(b[62:], 76); return b }, ErrLayout},
		"more than a chunk may have": {manyExtensions, ErrLayout},
	} {
		if _, _, err := ParseRouting(x.change(bytes.Clone(whole))); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	h.Extensions = make([]Extension, maxExtensions+1)
	if b, err := h.AppendTo([]byte("x")); !errors.Is(err, ErrLayout) || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	h.Extensions = []Extension{{Body: make([]byte, 1<<16)}}
	if _, err := h.AppendTo(nil); !errors.Is(err, ErrLayout) {
		t.Error(err)
	}
}

// manyExtensions returns a header with one extension more than allowed.
func manyExtensions(b []byte) []byte {
	b = b[:routingSize]
	for i := range maxExtensions + 1 {
		next := routingSize + (i+1)*extensionSize
		if i == maxExtensions {
			next = 0
		}
		b = be.AppendUint16(be.AppendUint16(be.AppendUint16(b, 0), uint16(next)), 0)
	}
	be.PutUint16(b[4:], uint16(len(b)))
	return b
}

// Every encoded frame is decoded unchanged.
func TestRoundTrips(t *testing.T) {
	word, long := rapid.Uint32(), rapid.Uint64()
	hellos := rapid.Custom(func(t *rapid.T) (h Hello) {
		h.Number, h.Challenge = long.Draw(t, "number"), long.Draw(t, "challenge")
		for _, part := range [][]byte{h.Key[:], h.MAC[:], h.Signature[:]} {
			copy(part, rapid.SliceOfN(rapid.Byte(), len(part), len(part)).Draw(t, "bytes"))
		}
		return h
	})
	frames := rapid.OneOf(
		rapid.Custom(func(t *rapid.T) Frame {
			return &Data{word.Draw(t, "sequence"), word.Draw(t, "hop"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload")}
		}),
		rapid.Custom(func(t *rapid.T) Frame { return &CSYN{word.Draw(t, "hop"), word.Draw(t, "packets")} }),
		rapid.Custom(func(t *rapid.T) Frame {
			n := rapid.Uint32Range(0, 10_000).Draw(t, "packets")
			got := NewBitmap(n)
			for _, p := range rapid.SliceOf(rapid.Uint32Range(0, n)).Draw(t, "got") {
				got.Set(p)
			}
			return &CACK{word.Draw(t, "hop"), n, got}
		}),
		rapid.Custom(func(t *rapid.T) Frame {
			return &Probe{word.Draw(t, "source"), word.Draw(t, "destination"), word.Draw(t, "sequence"), rapid.Bool().Draw(t, "ack")}
		}),
		rapid.Custom(func(t *rapid.T) Frame {
			return &LSA{
				word.Draw(t, "sender"), word.Draw(t, "source"), word.Draw(t, "destination"), word.Draw(t, "sequence"),
				rapid.SliceOf(rapid.Custom(func(t *rapid.T) Neighbour {
					return Neighbour{word.Draw(t, "short"), word.Draw(t, "long"), word.Draw(t, "id")}
				})).Draw(t, "neighbours"),
			}
		}),
		rapid.Custom(func(t *rapid.T) Frame {
			return &Associate{word.Draw(t, "client"), word.Draw(t, "host"), rapid.Uint16().Draw(t, "weight")}
		}),
		rapid.Custom(func(t *rapid.T) Frame { return &Deassociate{word.Draw(t, "entity"), word.Draw(t, "host")} }),
		rapid.Custom(func(t *rapid.T) Frame {
			return &StreamData{Stream(long.Draw(t, "stream")), long.Draw(t, "number") &^ (freshBit | blockedBit), rapid.Bool().Draw(t, "fresh"), rapid.Bool().Draw(t, "blocked"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload")}
		}),
		rapid.Custom(func(t *rapid.T) Frame {
			return &StreamAck{
				Stream(long.Draw(t, "stream")), long.Draw(t, "next"), long.Draw(t, "taken"), long.Draw(t, "limit"),
				rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Range { return Range{rapid.Uint16().Draw(t, "skip"), rapid.Uint16().Draw(t, "count")} }), 0, MaxRanges).Draw(t, "ranges"),
			}
		}),
		rapid.Custom(func(t *rapid.T) Frame { return &StreamQuery{Stream(long.Draw(t, "stream"))} }),
		rapid.Custom(func(t *rapid.T) Frame {
			return &StreamReset{Stream(long.Draw(t, "stream")), ResetReason(word.Draw(t, "reason")), long.Draw(t, "taken")}
		}),
		rapid.Custom(func(t *rapid.T) Frame { h := hellos.Draw(t, "hello"); return &h }),
		rapid.Custom(func(t *rapid.T) Frame {
			return &PathRequest{long.Draw(t, "id"), GUID(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "destination")), Service(rapid.Uint16().Draw(t, "service")), rapid.Uint16().Draw(t, "back"), rapid.Uint16().Draw(t, "forth"), rapid.Uint32().Draw(t, "lease"), hellos.Draw(t, "hello")}
		}),
		rapid.Custom(func(t *rapid.T) Frame {
			return &PathGrant{rapid.Uint16().Draw(t, "label"), word.Draw(t, "lease"), long.Draw(t, "token"), long.Draw(t, "instance"), hellos.Draw(t, "hello")}
		}),
		rapid.Custom(func(t *rapid.T) Frame {
			name := func(of string) GUID { return GUID(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, of)) }
			return &PathConfirm{name("source"), name("destination"), long.Draw(t, "token"), Stream(long.Draw(t, "stream"))}
		}),
	)
	rapid.Check(t, func(t *rapid.T) {
		f := frames.Draw(t, "frame")
		padding := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "padding")
		got, err := Parse(append(f.AppendTo(nil), padding...))
		if diff := cmp.Diff(f, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func TestHeadersRoundTrip(t *testing.T) {
	guid := rapid.Custom(func(t *rapid.T) GUID { return GUID(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "GUID")) })
	address := rapid.Custom(func(t *rapid.T) Address { return Address{guid.Draw(t, "GUID"), rapid.Uint32().Draw(t, "NA")} })
	service := rapid.Custom(func(t *rapid.T) Service { return Service(rapid.Uint16().Draw(t, "service")) &^ Extended })
	rapid.Check(t, func(t *rapid.T) {
		h := RoutingHeader{
			Version: rapid.Byte().Draw(t, "version"), Service: service.Draw(t, "service"), Protocol: rapid.Byte().Draw(t, "protocol"), ChunkSize: rapid.Uint32().Draw(t, "size"),
			Source: address.Draw(t, "source"), Destination: address.Draw(t, "destination"),
			Extensions: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Extension {
				return Extension{service.Draw(t, "service"), rapid.Uint16().Draw(t, "options"), rapid.SliceOf(rapid.Byte()).Draw(t, "body")}
			}), 0, maxExtensions).Draw(t, "extensions"),
		}
		x := TransportHeader{
			rapid.Uint32().Draw(t, "sequence"), rapid.Uint32().Draw(t, "size"), rapid.Uint32().Draw(t, "packets"), rapid.Uint16().Draw(t, "start"), rapid.Uint16().Draw(t, "end"),
			rapid.Uint8Range(0, 15).Draw(t, "kind"), rapid.Uint8Range(0, 15).Draw(t, "flags"), Reliability(rapid.Byte().Draw(t, "reliability")),
			rapid.Uint16().Draw(t, "offset"), rapid.Uint16().Draw(t, "congestion"), rapid.Uint16().Draw(t, "window"),
		}
		payload := rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
		b, err := h.AppendTo(nil)
		if err != nil || len(b) != h.Size() {
			t.Fatalf("%d bytes of %d, %v", len(b), h.Size(), err)
		}
		gotH, rest, err := ParseRouting(append(x.AppendTo(b), payload...))
		if diff := cmp.Diff(h, gotH, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
		gotX, rest, err := ParseTransport(rest)
		if err != nil || gotX != x || !bytes.Equal(rest, payload) {
			t.Fatalf("%v: %+v, %x", err, gotX, rest)
		}
	})
}

func TestBitmap(t *testing.T) {
	m := NewBitmap(9)
	m.Set(0)
	m.Set(8)
	for p := range uint32(100) {
		if want := p == 0 || p == 8; m.Has(p) != want {
			t.Errorf("packet %d: %v", p, m.Has(p))
		}
	}
	if m.Has(1<<32 - 1) {
		t.Error("a packet beyond all has come")
	}
}

func TestGUID(t *testing.T) {
	g := GUID{0: 1, 16: 0xde, 17: 0xad, 18: 0xbe, 19: 0xef}
	if g.Short() != 0xdeadbeef || g.IsZero() || !(GUID{}).IsZero() {
		t.Errorf("%x", g.Short())
	}
	var again GUID
	if err := again.UnmarshalText([]byte(g.String())); err != nil || again != g {
		t.Errorf("%v, %v", again, err)
	}
	for _, s := range []string{"", "12", strings.Repeat("0", 39), strings.Repeat("0", 41), strings.Repeat("g", 40)} {
		if _, err := ParseGUID(s); err == nil {
			t.Errorf("%q is a name", s)
		}
	}
}

// The streams of one session follow each other, also when the count wraps around.
func TestStreams(t *testing.T) {
	s := NewStream(0xa1b2c3d4e5f6)
	for range 1 << 16 {
		next := s.Next()
		if next.Session() != 0xa1b2c3d4e5f6 || !next.After(s) || s.After(next) || s.After(s) {
			t.Fatalf("%x after %x", next, s)
		}
		s = next
	}
	if s != NewStream(0xa1b2c3d4e5f6) {
		t.Errorf("%x", s)
	}
}

func TestTypesHaveNames(t *testing.T) {
	for typ := TypeData; typ <= TypePathConfirm; typ++ {
		if typ > TypeDeassociate && typ < TypeStreamData {
			continue
		}
		if f := newFrame(typ); f == nil || f.Type() != typ || strings.HasPrefix(typ.String(), "type") {
			t.Errorf("%v: %T", typ, f)
		}
	}
	if s := Type(1 << 31).String(); s != "type 2147483648" {
		t.Error(s)
	}
}

// FuzzParse: what is read is written as it was read, and takes no more memory than it has bytes.
func FuzzParse(f *testing.F) {
	f.Add((&LSA{Neighbours: make([]Neighbour, 3)}).AppendTo(nil))
	f.Add((&CACK{Packets: 20}).AppendTo(nil))
	f.Add((&Data{Payload: make([]byte, 100)}).AppendTo(nil))
	f.Add((&StreamData{Payload: make([]byte, 100)}).AppendTo(nil))
	f.Add((&StreamAck{Ranges: make([]Range, 3)}).AppendTo(nil))
	f.Add((&Hello{}).AppendTo(nil))
	f.Add((&PathRequest{}).AppendTo(nil))
	f.Add((&PathGrant{}).AppendTo(nil))
	f.Add((&PathConfirm{}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := Parse(b)
		if err != nil {
			return
		}
		if again := frame.AppendTo(nil); !bytes.HasPrefix(b, again) {
			t.Fatalf("%x is read as %+v, and written as %x", b, frame, again)
		}
	})
}

// FuzzRouting: what is read is written, and read the same.
func FuzzRouting(f *testing.F) {
	h := RoutingHeader{Extensions: []Extension{{Service: Compute, Body: make([]byte, 4)}, {}}}
	b, err := h.AppendTo(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, rest, err := ParseRouting(b)
		if err != nil {
			return
		}
		again, err := h.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := ParseRouting(again)
		if diff := cmp.Diff(h, got, cmpopts.EquateEmpty()); err != nil || diff != "" || len(rest) > len(b)-routingSize {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

// FuzzTransport checks that a transport header that can be parsed is encoded as it was received, and
// that the rest of the bytes is returned.
func FuzzTransport(f *testing.F) {
	f.Add((&TransportHeader{Sequence: 1, Kind: 2, Flags: 3, Reliability: ReliabilityACK, Window: 4}).AppendTo(nil))
	f.Add(make([]byte, transportSize-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, err := ParseTransport(b)
		if (err == nil) != (len(b) >= transportSize) {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
		if err != nil {
			return
		}
		if again := append(h.AppendTo(nil), payload...); !bytes.Equal(again, b) {
			t.Fatalf("%x is read as %+v, and written as %x", b, h, again)
		}
	})
}
