package sflow

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/network/topology"
)

// Datagrams that Open vSwitch 3.1 sent.
const (
	ovsCounters = "ovs-counters.bin"
	ovsPackets  = "ovs-packets.bin"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCountersOfOpenVSwitch(t *testing.T) {
	var d Datagram
	if err := d.Parse(file(t, ovsCounters)); err != nil {
		t.Fatal(err)
	}
	if d.Agent != netip.MustParseAddr("198.18.16.1") || d.Sequence != 3 || len(d.Counters) != 4 || len(d.Packets) != 0 {
		t.Fatalf("%+v", d)
	}
	if c := d.Counters[0]; c.Known || !c.Port.IsZero() {
		t.Errorf("the datapath's own counters: %+v", c)
	}
	for i, port := range []uint32{65534, 2, 1} { // the bridge's own port has its OpenFlow 1.0 number
		if c := d.Counters[1+i]; !c.Known || c.Port != (topology.PortRef{Switch: 1, Port: port}) {
			t.Errorf("%+v, want port %d of switch 1", c, port)
		}
	}
}

// TestAgainstGopacket compares with another decoder.
func TestAgainstGopacket(t *testing.T) {
	for _, name := range []string{ovsCounters, ovsPackets} {
		b := file(t, name)
		var d Datagram
		if err := d.Parse(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var other layers.SFlowDatagram
		if err := other.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
			t.Fatal(err)
		}
		if len(d.Counters) != len(other.CounterSamples) || len(d.Packets) != len(other.FlowSamples) {
			t.Fatalf("%s: %d and %d samples, want %d and %d", name, len(d.Counters), len(d.Packets), len(other.CounterSamples), len(other.FlowSamples))
		}
		for i, s := range other.CounterSamples {
			sameCounters(t, d.Counters[i], s)
		}
		for i, s := range other.FlowSamples {
			samePacket(t, d.Packets[i], s)
		}
	}
}

func sameCounters(t *testing.T, c Counters, s layers.SFlowCounterSample) {
	t.Helper()
	wide := func(v uint32) uint64 {
		if v == math.MaxUint32 {
			return stats.Unsupported
		}
		return uint64(v)
	}
	for _, r := range s.Records {
		switch r := r.(type) {
		case layers.SFlowGenericInterfaceCounters:
			want := stats.Counters{
				RxBytes: r.IfInOctets, TxBytes: r.IfOutOctets, RxPackets: wide(r.IfInUcastPkts), TxPackets: wide(r.IfOutUcastPkts),
				RxDropped: wide(r.IfInDiscards), TxDropped: wide(r.IfOutDiscards), RxErrors: wide(r.IfInErrors), TxErrors: wide(r.IfOutErrors),
			}
			if !c.Known || c.Index != r.IfIndex || c.Counters != want {
				t.Errorf("%+v, want %+v of port %d", c, want, r.IfIndex)
			}
		case layers.SFlowOpenflowPortCounters:
			if uint64(c.Port.Switch) != r.DatapathID || c.Port.Port != r.PortNo {
				t.Errorf("port %v, want %d of %x", c.Port, r.PortNo, r.DatapathID)
			}
		}
	}
}

func samePacket(t *testing.T, p Packet, s layers.SFlowFlowSample) {
	t.Helper()
	out := s.OutputInterface
	if out>>30 != 0 { // dropped, or sent to several ports
		out = 0
	}
	if p.Rate != s.SamplingRate || p.In != s.InputInterface || p.Out != out {
		t.Errorf("%+v, want rate %d, in %d, out %d", p, s.SamplingRate, s.InputInterface, out)
	}
	for _, r := range s.Records {
		if h, ok := r.(layers.SFlowRawPacketFlowRecord); ok && (p.Length != h.FrameLength-h.PayloadRemoved || len(p.Header) != int(h.HeaderLength) || string(p.Header) != string(h.Header.Data()[:h.HeaderLength])) {
			t.Errorf("%d bytes of a frame of %d, want %d of %d", len(p.Header), p.Length, h.HeaderLength, h.FrameLength-h.PayloadRemoved)
		}
	}
}

// words returns a datagram of these words, after the header.
func words(samples uint32, body ...uint32) []byte {
	head := []uint32{version, addressV4, 0x7f000001, 0, 1, 0, samples}
	var b []byte
	for _, w := range append(head, body...) {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

// opaque returns a format, a length, and a body of that length.
func opaque(format uint32, body ...uint32) []uint32 {
	return append([]uint32{format, uint32(4 * len(body))}, body...)
}

// generic returns interface counters with these numbers of unicast, multicast and broadcast
// packets received.
func generic(unicast, multicast, broadcast uint32) []uint32 {
	w := make([]uint32, 22)
	w[7], w[8], w[9], w[10] = 5000, unicast, multicast, broadcast // the low half of the bytes comes before the packets
	return opaque(counterGeneric, w...)
}

func join(parts ...[]uint32) (out []uint32) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func TestUnknownIsSkipped(t *testing.T) {
	unknown := opaque(7<<12|9, 1, 2, 3)
	port := opaque(counterOpenFlow, 0, 0xa1, 4)
	var d Datagram
	if err := d.Parse(words(3, join(unknown, opaque(sampleCounters, join([]uint32{1, 2, 3}, unknown, port, generic(10, 20, 30))...), unknown)...)); err != nil {
		t.Fatal(err)
	}
	if len(d.Counters) != 1 {
		t.Fatalf("%+v", d)
	}
	c := d.Counters[0]
	if c.Index != 2 || c.Port != (topology.PortRef{Switch: 0xa1, Port: 4}) || c.RxBytes != 5000 || c.RxPackets != 60 {
		t.Errorf("%+v", c)
	}
}

func TestExpandedSamples(t *testing.T) {
	header := opaque(packetHeader, headerEthernet, 1514, 4, 6, 0x01020304, 0x05060000)
	var d Datagram
	err := d.Parse(words(3, join(
		opaque(sampleCounterExpanded, join([]uint32{1, 0, 1 << 25, 1}, generic(math.MaxUint32-5, 10, 3))...),
		opaque(samplePacketExpanded, join([]uint32{1, 0, 1 << 25, 64, 1, 0, 0, 1 << 25, 2, 3, 1}, header)...),
		opaque(sampleCounters, 1, 1<<24|7, 0))...))
	if err != nil {
		t.Fatal(err)
	}
	if c := d.Counters[0]; c.Index != 1<<25 || c.RxPackets != 7 {
		t.Errorf("%+v, want a sum that wraps like its parts", c)
	}
	if c := d.Counters[1]; c.Index != 0 || c.Known {
		t.Errorf("%+v: it is not an interface", c)
	}
	if p := d.Packets[0]; p.Rate != 64 || p.In != 1<<25 || p.Out != 0 || p.Length != 1510 || string(p.Header) != "\x01\x02\x03\x04\x05\x06" {
		t.Errorf("%+v", p)
	}
}

func TestMalformed(t *testing.T) {
	good := file(t, ovsCounters)
	for cut := range good {
		var d Datagram
		if err := d.Parse(good[:cut]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut to %d bytes: %v", cut, err)
		}
	}
	for _, tt := range []struct {
		name string
		b    []byte
	}{
		{"version 4", append([]byte{0, 0, 0, 4}, good[4:]...)},
		{"address of no kind", append([]byte{0, 0, 0, 5, 0, 0, 0, 3}, good[8:]...)},
		{"four billion samples", words(math.MaxUint32)},
		{"a length of four billion", words(1, sampleCounters, math.MaxUint32)},
		{"four billion records", words(1, opaque(sampleCounters, 1, 2, math.MaxUint32)...)},
		{"a record longer than its sample", words(1, opaque(sampleCounters, 1, 2, 1, counterGeneric, 88)...)},
		{"counters shorter than they are", words(1, opaque(sampleCounters, join([]uint32{1, 2, 1}, opaque(counterGeneric, 1, 2))...)...)},
		{"a header longer than its record", words(1, opaque(samplePacket, join([]uint32{1, 2, 64, 1, 0, 1, 2, 1}, opaque(packetHeader, headerEthernet, 60, 0, 60))...)...)},
	} {
		var d Datagram
		if err := d.Parse(tt.b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{ovsCounters, ovsPackets} {
		f.Add(file(f, name))
	}
	f.Add(words(1, opaque(sampleCounters, 1, 2, math.MaxUint32)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Datagram
		if err := d.Parse(b); err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if !d.Agent.IsValid() || 8*(len(d.Counters)+len(d.Packets)) > len(b) {
			t.Fatalf("more samples than %d bytes can hold: %+v", len(b), d)
		}
		for _, p := range d.Packets {
			if len(p.Header) > len(b) {
				t.Fatalf("a header of %d bytes in a datagram of %d", len(p.Header), len(b))
			}
		}
	})
}
