package gnrswire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

var (
	client = AddrPortOf(netip.MustParseAddrPort("192.0.2.1:5001"))
	name   = frame.GUID{0: 0xaa, 19: 0xbb}
	guid   = "aa" + strings.Repeat("00", 18) + "bb"
)

// The layouts, byte for byte, as the original release has them.
func TestLayouts(t *testing.T) {
	for _, x := range []struct {
		name string
		m    Message
		want string
	}{
		{"lookup", Message{Kind: Lookup, Request: 7, Requester: client}, "00 01 002a 00000007 0000 0016" + " 0000 0006 c0000201 1389 " + guid},
		{
			"insert",
			Message{Version: 1, Kind: Insert, Request: 7, Requester: client, Options: []Option{{Kind: Expiry, Value: []byte{0, 0, 3, 0x84}}, {Kind: Recursive}}, Addresses: []Address{NameOf(name)}},
			"01 00 004e 00000007 0016 001e" + " 0000 0006 c0000201 1389" + " 01 04 00000384 80 00 " + guid + " 00000001 0001 0014 " + guid,
		},
		{
			"answer",
			Message{Kind: Lookup, Answer: true, Request: 8, Requester: NameOf(name), Code: 3, Addresses: []Address{client, client}},
			"00 81 0040 00000008 0000 0024 0001 0014 " + guid + " 0003 0000 00000002 0000 0006 c0000201 1389 0000 0006 c0000201 1389",
		},
		{"answer to an update", Message{Kind: Update, Answer: true, Requester: client}, "00 82 001e 00000000 0000 0016 0000 0006 c0000201 1389 0000 0000 00000000"},
	} {
		if !x.m.Answer {
			x.m.GUID = name
		}
		want, err := hex.DecodeString(strings.ReplaceAll(x.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		be.PutUint16(want[2:], uint16(len(want)))
		got, err := x.m.AppendTo([]byte{0xee})
		if err != nil || !bytes.Equal(got[1:], want) {
			t.Errorf("%s is %x, want %x; %v", x.name, got, want, err)
		}
		again, err := Parse(append(want, 1, 2, 3))
		if diff := cmp.Diff(&x.m, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", x.name, err, diff)
		}
		for n := range want {
			if _, err := Parse(want[:n]); !errors.Is(err, frame.ErrShort) {
				t.Errorf("%d bytes of %s: %v", n, x.name, err)
			}
		}
	}
}

// What contradicts itself is refused, and what claims more than there is costs nothing.
func TestRefused(t *testing.T) {
	m := Message{Kind: Update, Requester: client, Options: []Option{{Kind: Recursive}}, Addresses: []Address{client}}
	whole, err := m.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(at int, v uint16) func([]byte) { return func(b []byte) { be.PutUint16(b[at:], v) } }
	for name, x := range map[string]struct {
		change func([]byte)
		want   error
	}{
		"kind":                       {func(b []byte) { b[1] = 3 }, ErrKind},
		"answer of no kind":          {func(b []byte) { b[1] = 0x83 }, ErrKind},
		"longer than it is":          {put(2, 500), frame.ErrShort},
		"shorter than its payload":   {put(2, 20), frame.ErrLayout},
		"payload in the header":      {put(10, 11), frame.ErrLayout},
		"options in the header":      {put(8, 11), frame.ErrLayout},
		"options behind the payload": {put(8, 30), frame.ErrLayout},
		"no room for the address":    {put(8, 13), frame.ErrShort},
		"address beyond the options": {put(14, 7), frame.ErrShort},
		"option without an end":      {func(b []byte) { b[22] &^= lastOption }, frame.ErrShort},
		"option beyond the payload":  {func(b []byte) { b[23] = 9 }, frame.ErrShort},
		"a billion addresses":        {func(b []byte) { b[44] = 0x40 }, frame.ErrShort},
		"an address too long":        {put(50, 7), frame.ErrShort},
	} {
		b := bytes.Clone(whole)
		x.change(b)
		if m, err := Parse(b); !errors.Is(err, x.want) {
			t.Errorf("%s: %+v, %v, want %v", name, m, err, x.want)
		}
	}
	for name, x := range map[string]struct {
		m    Message
		want error
	}{
		"kind":        {Message{Kind: 3}, ErrKind},
		"option":      {Message{Options: []Option{{Value: make([]byte, 256)}}}, ErrLong},
		"option kind": {Message{Options: []Option{{Kind: 128}}}, ErrLong},
		"address":     {Message{Requester: Address{Value: make([]byte, 1<<16)}}, ErrLong},
		"addresses":   {Message{Addresses: make([]Address, 1<<14)}, ErrLong},
	} {
		if b, err := x.m.AppendTo([]byte("x")); !errors.Is(err, x.want) || string(b) != "x" {
			t.Errorf("%s: %d bytes, %v, want %v", name, len(b), err, x.want)
		}
	}
}

// Whatever is written is read as it was.
func TestRoundTrip(t *testing.T) {
	bytesOf := func(most int) *rapid.Generator[[]byte] { return rapid.SliceOfN(rapid.Byte(), 0, most) }
	address := rapid.Custom(func(t *rapid.T) Address {
		return Address{AddressKind(rapid.Uint16().Draw(t, "kind")), bytesOf(40).Draw(t, "value")}
	})
	rapid.Check(t, func(t *rapid.T) {
		m := &Message{
			Version: rapid.Byte().Draw(t, "version"), Kind: Kind(rapid.Uint8Range(0, uint8(Update)).Draw(t, "kind")), Answer: rapid.Bool().Draw(t, "answer"),
			Request: rapid.Uint32().Draw(t, "request"), Requester: address.Draw(t, "requester"),
			Options: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Option {
				return Option{OptionKind(rapid.Uint8Range(0, lastOption-1).Draw(t, "kind")), bytesOf(255).Draw(t, "value")}
			}), 0, 8).Draw(t, "options"),
		}
		if m.Answer {
			m.Code = rapid.Uint16().Draw(t, "code")
		} else {
			m.GUID = frame.GUID(rapid.SliceOfN(rapid.Byte(), guidSize, guidSize).Draw(t, "GUID"))
		}
		if m.hasAddresses() {
			m.Addresses = rapid.SliceOfN(address, 0, 20).Draw(t, "addresses")
		}
		b, err := m.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(b)
		if diff := cmp.Diff(m, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func TestAddresses(t *testing.T) {
	if at, ok := client.AddrPort(); !ok || at.String() != "192.0.2.1:5001" || client.String() != at.String() {
		t.Error(client)
	}
	if g, ok := NameOf(name).GUID(); !ok || g != name || NameOf(name).String() != name.String() {
		t.Error(g)
	}
	for _, a := range []Address{{}, {Kind: IPv4Port, Value: make([]byte, 7)}, {Kind: Name, Value: make([]byte, 6)}, {Kind: 9, Value: make([]byte, 20)}} {
		_, is := a.AddrPort()
		_, named := a.GUID()
		if is || named || !strings.HasPrefix(a.String(), "address of kind") {
			t.Errorf("%v", a)
		}
	}
}

func FuzzParse(f *testing.F) {
	m := Message{Kind: Update, Requester: client, Options: []Option{{Kind: Recursive}}, Addresses: []Address{client, NameOf(name)}}
	b, err := m.AppendTo(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		again, err := m.AppendTo(nil)
		if err != nil || len(again) > len(b) {
			t.Fatalf("%+v of %d bytes is written in %d, %v", m, len(b), len(again), err)
		}
		got, err := Parse(again)
		if diff := cmp.Diff(m, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}
