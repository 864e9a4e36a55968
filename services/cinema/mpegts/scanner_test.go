package mpegts

import (
	"slices"
	"testing"
)

// packet returns a packet with a payload at its end.
func packet(pid uint16, begins, random bool, payload []byte) []byte {
	p := []byte{sync, byte(pid >> 8), byte(pid), 0x30}
	if begins {
		p[1] |= 0x40
	}
	n := PacketSize - 4 - 1 - len(payload)
	p = append(p, byte(n))
	field := make([]byte, n)
	if n > 0 && random {
		field[0] = 0x40
	}
	return append(append(p, field...), payload...)
}

// table returns the payload of a section.
func table(kind byte, body []byte) []byte {
	n := len(body) + 9
	b := []byte{0, kind, 0xb0 | byte(n>>8), byte(n), 0, 1, 0xc1, 0, 0}
	return append(append(b, body...), 0, 0, 0, 0)
}

// pes returns the beginning of a PES packet with timestamps.
func pes(stamps ...int64) []byte {
	flags := []byte{0, 0x80, 0xc0}[len(stamps)]
	b := []byte{0, 0, 1, 0xe0, 0, 0, 0x80, flags, byte(5 * len(stamps))}
	for range stamps {
		b = append(b, 0x21, 0, 1, 0, 1)
	}
	b = append(b, 1, 2, 3, 4, 5)
	for i, field := range stampsOf(b) {
		one := append([]byte{0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5}, field...)
		p := packet(1, true, false, one)
		Shift(p, stamps[i])
		copy(field, p[PacketSize-5:])
	}
	return b
}

var (
	pat = packet(0, true, false, table(tablePAT, []byte{0, 0, 0xe0, 0x10, 0, 1, 0xe1, 0}))
	// H.264, Opus as private data, another sound, and subtitles.
	pmt = packet(0x100, true, false, table(tablePMT, []byte{
		0xe1, 1, 0xf0, 0, 0x06, 0xe1, 4, 0xf0, 2, 0x59, 0, 0x1b, 0xe1, 1, 0xf0, 0, 0x06, 0xe1, 2, 0xf0, 6, 5, 4, 'O', 'p', 'u', 's', 0x0f, 0xe1, 3, 0xf0, 0,
	}))
)

// TestScan checks that picture and sound are found by the tables, with their times.
func TestScan(t *testing.T) {
	var s Scanner
	for i, x := range []struct {
		packet []byte
		want   Packet
	}{
		{packet(0x101, true, true, pes(1, 2)), Packet{}}, // nothing is known yet
		{pat, Packet{Kind: Table}},
		{pmt, Packet{Kind: Table}},
		{packet(0x101, true, true, pes(9000, 6000)), Packet{Kind: Picture, Begins: true, Key: true, Time: 6000, Timed: true}},
		{packet(0x101, false, false, []byte{1}), Packet{Kind: Picture}},
		{packet(0x101, true, false, pes(1<<33-1)), Packet{Kind: Picture, Begins: true, Time: 1<<33 - 1, Timed: true}},
		{packet(0x102, true, false, pes(77)), Packet{Kind: Sound, Begins: true, Key: true, Time: 77, Timed: true}},
		{packet(0x103, true, false, pes(77)), Packet{}}, // the second sound
		{packet(0x104, true, false, pes(77)), Packet{}},
		{packet(nullPID, false, false, nil), Packet{}},
		{[]byte("short"), Packet{}},
	} {
		if got := s.Scan(x.packet); got != x.want {
			t.Errorf("%d: %+v, want %+v", i, got, x.want)
		}
	}
	if s.Picture() != (Stream{PID: 0x101, Type: 0x1b}) || s.Sound() != (Stream{PID: 0x102, Type: 6}) {
		t.Errorf("%+v, %+v", s.Picture(), s.Sound())
	}
}

// TestShift checks that shifting changes both timestamps, around their end too, and nothing else.
func TestShift(t *testing.T) {
	p := packet(1, true, false, pes(1<<33-100, 50))
	before := slices.Clone(p)
	Shift(p, 200)
	payload, _ := payloadOf(p)
	fields := stampsOf(payload)
	if a, b := readStamp(fields[0]), readStamp(fields[1]); a != 100 || b != 250 {
		t.Errorf("%d and %d, want 100 and 250", a, b)
	}
	Shift(p, -200)
	if !slices.Equal(p, before) {
		t.Errorf("%x became %x", before, p)
	}
}

// FuzzScan checks that no packets make the scanner panic, or keep more than a table.
func FuzzScan(f *testing.F) {
	f.Add(slices.Concat(pat, pmt, packet(0x101, true, true, pes(1, 2)), packet(0x102, true, false, pes(3))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Scanner
		for p := range slices.Chunk(b, PacketSize) {
			if x := s.Scan(p); x.Begins {
				Shift(p, 1000)
			}
			if n := max(len(s.pat.b), len(s.pmt.b)); n > maxTable+PacketSize {
				t.Fatalf("%d bytes are kept", n)
			}
		}
	})
}
