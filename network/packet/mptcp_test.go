package packet

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// TestMPTCPOf parses options that Linux sends: in a SYN that opens a connection, and in one that
// joins it.
func TestMPTCPOf(t *testing.T) {
	timestamp := []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7}
	capable := []byte{30, 4, 0x01, 0x01}
	join := []byte{30, 12, 0x11, 7, 1, 2, 3, 4, 9, 9, 9, 9}
	with := func(more ...[]byte) (b []byte) {
		for _, o := range append([][]byte{timestamp}, more...) {
			b = append(b, o...)
		}
		return b
	}
	joined := MPTCP{Join: true, Token: 0x01020304, AddressID: 7, Backup: true}
	for name, c := range map[string]struct {
		options []byte
		want    MPTCP
	}{
		"nothing":                       {nil, MPTCP{}},
		"plain TCP":                     {timestamp, MPTCP{}},
		"a connection":                  {with(capable), MPTCP{Capable: true, Version: 1}},
		"a connection of version 0":     {with([]byte{30, 12, 0x00, 0x81, 1, 2, 3, 4, 5, 6, 7, 8}), MPTCP{Capable: true}},
		"a join":                        {with(join), joined},
		"a join before all else":        {append(append([]byte{}, join...), timestamp...), joined},
		"after the end":                 {with([]byte{0}, join), MPTCP{}},
		"both":                          {with(capable, join), MPTCP{}},
		"twice":                         {with(join, join), MPTCP{}},
		"a join as its answer is":       {with([]byte{30, 16, 0x10, 7, 1, 2, 3, 4, 9, 9, 9, 9, 9, 9, 9, 9}), MPTCP{}},
		"a connection as its answer is": {with([]byte{30, 12, 0x01, 1, 1, 2, 3, 4, 5, 6, 7, 8}), MPTCP{}},
		"an address, which no SYN has":  {with([]byte{30, 8, 0x30, 1, 10, 0, 0, 1}, join), joined},
		"an option without subtype":     {with([]byte{30, 2}, join), joined},
		"an option of no length":        {with([]byte{30, 0}, join), MPTCP{}},
		"an option that does not end":   {with(join[:11]), MPTCP{}},
		"a kind alone":                  {with([]byte{30}), MPTCP{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := MPTCPOf(c.options); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestMPTCPBesideOthers checks that a join is parsed correctly beside any other options.
func TestMPTCPBesideOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := MPTCP{Join: true, Token: rapid.Uint32().Draw(t, "token"), AddressID: rapid.Byte().Draw(t, "address"), Backup: rapid.Bool().Draw(t, "backup")}
		join := []byte{30, 12, 0x10, want.AddressID}
		if want.Backup {
			join[2] |= 1
		}
		join = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(join, want.Token), rapid.Uint32().Draw(t, "number"))
		other := rapid.Custom(func(t *rapid.T) []byte {
			kind := rapid.Byte().Filter(func(b byte) bool { return b != optionEnd && b != optionMPTCP }).Draw(t, "kind")
			if kind == optionNop {
				return []byte{kind}
			}
			value := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "value")
			return append([]byte{kind, byte(2 + len(value))}, value...)
		})
		var options []byte
		for range rapid.IntRange(0, 3).Draw(t, "before") {
			options = append(options, other.Draw(t, "option")...)
		}
		options = append(options, join...)
		for range rapid.IntRange(0, 3).Draw(t, "after") {
			options = append(options, other.Draw(t, "option")...)
		}
		if got := MPTCPOf(options); got != want {
			t.Fatalf("%v is read as %+v, want %+v", options, got, want)
		}
	})
}

// FuzzMPTCP checks that the result is consistent, and that nothing beyond the options is read.
func FuzzMPTCP(f *testing.F) {
	f.Add([]byte{30, 12, 0x10, 7, 1, 2, 3, 4, 9, 9, 9, 9})
	f.Add([]byte{2, 4, 5, 180, 1, 30, 4, 1, 1, 0})
	f.Fuzz(func(t *testing.T, options []byte) {
		m := MPTCPOf(options[:len(options):len(options)])
		if m.Join && m.Capable || !m.Join && m.Token != 0 || !m.Capable && m.Version != 0 {
			t.Fatalf("%+v", m)
		}
	})
}
