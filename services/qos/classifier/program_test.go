package classifier

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/services/qos/mark"
)

// frame is a packet with a DSCP, whose IPv4 checksum is right.
func frame(version int, tagged bool, dscp, ecn uint8) []byte {
	b := make([]byte, 12, 100)
	if tagged {
		b = append(b, 0x81, 0, 0, 5)
	}
	class := dscp<<2 | ecn
	if version == 4 {
		ip := []byte{0x45, class, 0, 40, 1, 2, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
		binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
		b = append(append(b, 8, 0), ip...)
	} else {
		b = append(append(b, 0x86, 0xdd), 0x60|class>>4, class<<4|0x7, 1, 2, 0, 20, 17, 64)
		b = append(b, make([]byte, 32)...)
	}
	return append(b, make([]byte, 20)...)
}

// sum is the ones' complement sum of RFC 1071: 0xffff for a header that is right.
func sum(b []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func load(t *testing.T, table Table) *ebpf.Program {
	t.Helper()
	live.Test(t)
	p, err := table.load()
	if errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// The program finds the class of marked packets and leaves them as if they had never
// been marked; everything else passes as it is.
func TestProgram(t *testing.T) {
	p := load(t, Table{Marks: []mark.Entry{{Mark: 3, Own: 0, Queue: 1}, {Mark: 7, Own: 46, Queue: 2}, {Mark: 63, Own: 63, Queue: 0xff}}})
	own := map[uint8]uint8{3: 0, 7: 46, 63: 63}
	class := map[uint8]uint32{3: 0x10002, 7: 0x10003, 63: 0x10100}
	for _, version := range []int{4, 6} {
		for _, tagged := range []bool{false, true} {
			for dscp := range uint8(64) {
				ecn := dscp % 4
				code, out, err := p.Test(frame(version, tagged, dscp, ecn))
				if err != nil {
					t.Fatal(err)
				}
				want := dscp
				if o, ok := own[dscp]; ok {
					want = o
				}
				if code != class[dscp] || string(out) != string(frame(version, tagged, want, ecn)) {
					t.Fatalf("IPv%d, tag %v, DSCP %d: class %#x, %x, want %#x, %x", version, tagged, dscp, code, out, class[dscp], frame(version, tagged, want, ecn))
				}
			}
		}
	}
	arp := append(append(make([]byte, 12), 8, 6), make([]byte, 46)...)
	if code, out, err := p.Test(arp); err != nil || code != 0 || string(out) != string(arp) {
		t.Errorf("ARP: %d, %v", code, err)
	}
}

// Probes of links have a class of their own, whatever marks there are; other LLDP and
// what is sent to their address have not.
func TestProgramOfProbes(t *testing.T) {
	lldp := func(dst [6]byte, ethType uint16) []byte {
		b := append(append(dst[:], make([]byte, 6)...), byte(ethType>>8), byte(ethType))
		return append(b, make([]byte, 60)...)
	}
	nearest := [6]byte{0x01, 0x80, 0xc2, 0, 0, 0x0e}
	for _, marks := range [][]mark.Entry{nil, {{Mark: 3, Queue: 1}}} {
		p := load(t, Table{Marks: marks, Probes: 4097})
		for _, tt := range []struct {
			name  string
			frame []byte
			class uint32
		}{
			{"a probe", lldp(nearest, 0x88cc), 0x11002},
			{"LLDP to another group", lldp([6]byte{0x01, 0x80, 0xc2, 0, 0, 0x03}, 0x88cc), 0},
			{"LLDP to a host", lldp([6]byte{0x02, 0, 0, 0, 0, 0x0e}, 0x88cc), 0},
			{"something else to the address", lldp(nearest, 0x0806), 0},
			{"an IP packet", frame(4, false, 5, 0), 0},
		} {
			code, out, err := p.Test(tt.frame)
			if err != nil || code != tt.class || string(out) != string(tt.frame) {
				t.Errorf("%s with %d marks: class %#x, want %#x, %v", tt.name, len(marks), code, tt.class, err)
			}
		}
	}
}

// A table of every mark there can be still fits.
func TestFullTable(t *testing.T) {
	var table Table
	for m := range uint8(64) {
		table.Marks = append(table.Marks, mark.Entry{Mark: m, Own: 63 - m, Queue: 0x0fff + uint32(m)})
	}
	table.Probes = 0x1001
	p := load(t, table)
	if code, _, err := p.Test(frame(4, false, 63, 0)); err != nil || code != 0x1103f {
		t.Errorf("class %#x, %v", code, err)
	}
}

func TestTableOf(t *testing.T) {
	queue := func(id uint32, marked, own uint8) ovsdb.Queue {
		return ovsdb.Queue{ID: id, Tags: mark.Entry{Queue: id, Mark: marked, Own: own}.Tags()}
	}
	probes := func(id uint32) ovsdb.Queue {
		return ovsdb.Queue{ID: id, Tags: map[string]string{mark.TagProbes: "yes"}}
	}
	keeps := func(id uint32, kept string) ovsdb.Queue {
		q := queue(id, 7, 46)
		q.Tags[mark.TagKept] = kept
		return q
	}
	root := func(queues ...ovsdb.Queue) *ovsdb.QoS { return &ovsdb.QoS{Root: ovsdb.Root{Queues: queues}} }
	table, err := tableOf(root(ovsdb.Queue{ID: 0}, queue(9, 7, 46), queue(4, 3, 0), ovsdb.Queue{ID: 5}, probes(4097)))
	want := []mark.Entry{{Queue: 4, Mark: 3}, {Queue: 9, Mark: 7, Own: 46}}
	if err != nil || !slices.Equal(table.Marks, want) || table.Probes != 4097 {
		t.Errorf("%v, %v", table, err)
	}
	table, err = tableOf(root(keeps(9, "50")))
	if want := []mark.Entry{{Queue: 9, Mark: 7, Own: 46}, {Queue: 9, Mark: 50, Own: 50}}; err != nil || !slices.Equal(table.Marks, want) {
		t.Errorf("a queue of which some packets keep their mark: %v, %v", table, err)
	}
	for name, q := range map[string]*ovsdb.QoS{
		"DSCP out of range": root(queue(1, 3, 64)),
		"kept out of range": root(keeps(1, "64")),
		"kept is a mark":    root(keeps(1, "7")),
		"no such class":     root(queue(0xfffe, 3, 0)),
		"one mark twice":    root(queue(1, 3, 0), queue(2, 3, 0)),
		"probes twice":      root(probes(1), probes(2)),
	} {
		if table, err := tableOf(q); err == nil {
			t.Errorf("%s: %v", name, table)
		}
	}
	if a, b := (Table{Marks: []mark.Entry{{Queue: 4, Mark: 3}}}).filterName(), (Table{Marks: []mark.Entry{{Queue: 4, Mark: 3, Own: 1}}}).filterName(); a == b || len(a) > 60 {
		t.Errorf("names %q, %q", a, b)
	}
}

// The queue of every class has a handle of its own, which neither the kernel chooses by
// itself, from 8001: on, nor Open vSwitch, whose is 1:.
func TestLeafHandles(t *testing.T) {
	seen := map[uint32]bool{}
	for class := uint16(1); class <= lastLeaf; class++ {
		h := leafHandle(class)
		if major := h >> 16; seen[h] || h&0xffff != 0 || major <= htbMajor || major >= 0x8000 {
			t.Fatalf("class %#x has the handle %#x", class, h)
		}
		seen[h] = true
	}
}
