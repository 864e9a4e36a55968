package sflow

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// ErrMalformed means a datagram that is not sFlow version 5, or whose lengths are inconsistent.
var ErrMalformed = errors.New("sflow: malformed datagram")

// Datagram is the part of a datagram that Sluice uses. Parse overwrites it; its slices of bytes
// are parts of the datagram.
type Datagram struct {
	// Agent and SubAgent identify the sender, by its own account.
	Agent    netip.Addr
	SubAgent uint32
	// Sequence numbers the datagrams of one sender.
	Sequence uint32
	Counters []Counters
	Packets  []Packet
}

// Counters is a reading of a port's counters.
type Counters struct {
	// Index is the port's ifIndex.
	Index uint32
	// Port is the switch and OpenFlow port, zero if the sender does not name them.
	Port topology.PortRef
	// Known reports whether the sample contained the counters.
	Known bool
	stats.Counters
}

// Packet is one sampled packet.
type Packet struct {
	// Rate is the number of packets of which this one was sampled.
	Rate uint32
	// In and Out are the ifIndexes of the ports by which it arrived and left. They are zero if
	// there is not exactly one port, or if it is unknown.
	In, Out uint32
	// Length is the length of the frame, without removed parts such as the frame check sequence.
	// Header is the frame's beginning.
	Length uint32
	Header []byte
}

// Formats of samples and records, of enterprise 0.
const (
	version = 5

	addressV4 = 1
	addressV6 = 2

	samplePacket          = 1
	sampleCounters        = 2
	samplePacketExpanded  = 3
	sampleCounterExpanded = 4

	counterGeneric  = 1
	counterOpenFlow = 1004

	packetHeader   = 1
	headerEthernet = 1
)

// Parse parses a datagram.
func (d *Datagram) Parse(b []byte) error {
	*d = Datagram{Counters: d.Counters[:0], Packets: d.Packets[:0]}
	x := xdrReader{b: b}
	if v := x.uint32(); v != version {
		return fmt.Errorf("%w: version %d, want %d", ErrMalformed, v, version)
	}
	switch kind := x.uint32(); kind {
	case addressV4:
		d.Agent, _ = netip.AddrFromSlice(x.bytes(4))
	case addressV6:
		d.Agent, _ = netip.AddrFromSlice(x.bytes(16))
	default:
		return fmt.Errorf("%w: agent address of type %d", ErrMalformed, kind)
	}
	d.SubAgent, d.Sequence = x.uint32(), x.uint32()
	x.uint32() // uptime of the agent
	samples := x.uint32()
	for i := range samples {
		format, body := x.record()
		if x.short {
			return fmt.Errorf("%w: %d bytes end within sample %d of %d", ErrMalformed, len(b), i+1, samples)
		}
		d.parseSample(format, &body)
		if body.short {
			return fmt.Errorf("%w: sample %d of %d, of format %#x, is longer than it says", ErrMalformed, i+1, samples, format)
		}
	}
	if x.short {
		return fmt.Errorf("%w: %d bytes are too few for a header", ErrMalformed, len(b))
	}
	return nil
}

// parseSample parses one sample of a supported kind.
func (d *Datagram) parseSample(format uint32, x *xdrReader) {
	switch format {
	case sampleCounters, sampleCounterExpanded:
		d.parseCounters(x, format == sampleCounterExpanded)
	case samplePacket, samplePacketExpanded:
		d.parsePacket(x, format == samplePacketExpanded)
	}
}

func (d *Datagram) parseCounters(x *xdrReader, expanded bool) {
	x.uint32() // number of the sample
	c := Counters{Index: x.source(expanded)}
	for range x.uint32() {
		format, body := x.record()
		if x.short {
			return
		}
		switch format {
		case counterGeneric:
			c.parseGeneric(&body)
		case counterOpenFlow:
			c.Port = topology.PortRef{Switch: openflow.DatapathID(body.uint64()), Port: body.uint32()}
		}
		x.short = x.short || body.short
	}
	d.Counters = append(d.Counters, c)
}

// parseGeneric parses the interface counters, which are those of SNMP's ifTable.
func (c *Counters) parseGeneric(x *xdrReader) {
	x.uint32() // ifIndex
	x.uint32() // type
	x.uint64() // speed
	x.uint32() // duplex
	x.uint32() // state
	c.RxBytes, c.RxPackets = x.uint64(), x.packets()
	c.RxDropped, c.RxErrors = x.counter32(), x.counter32()
	x.uint32() // packets of unknown protocols
	c.TxBytes, c.TxPackets = x.uint64(), x.packets()
	c.TxDropped, c.TxErrors = x.counter32(), x.counter32()
	x.uint32() // promiscuous mode
	c.Known = !x.short
}

// packets reads the counters of unicast, multicast and broadcast packets and returns their sum,
// which wraps where each of them does. An agent that does not count broadcasts separately (Open
// vSwitch) reports all packets in the first counter, including those of the second.
func (x *xdrReader) packets() uint64 {
	unicast, multicast, broadcast := x.counter32(), x.counter32(), x.counter32()
	if unicast == stats.Unsupported || multicast == stats.Unsupported || broadcast == stats.Unsupported {
		return unicast
	}
	return uint64(uint32(unicast + multicast + broadcast))
}

func (d *Datagram) parsePacket(x *xdrReader, expanded bool) {
	x.uint32() // number of the sample
	x.source(expanded)
	p := Packet{Rate: x.uint32()}
	x.uint32() // packets that could have been sampled
	x.uint32() // lost samples
	p.In, p.Out = x.port(expanded), x.port(expanded)
	for range x.uint32() {
		format, body := x.record()
		if x.short {
			return
		}
		if format != packetHeader || body.uint32() != headerEthernet {
			continue
		}
		p.Length = body.uint32()
		p.Length -= min(p.Length, body.uint32())
		p.Header = body.bytes(body.uint32())
		x.short = x.short || body.short
	}
	if p.Header != nil {
		d.Packets = append(d.Packets, p)
	}
}

// source reads the source of a sample: an ifIndex, or zero for other kinds.
func (x *xdrReader) source(expanded bool) uint32 {
	kind := uint32(0)
	v := x.uint32()
	if expanded {
		kind, v = v, x.uint32()
	} else {
		kind, v = v>>24, v&(1<<24-1)
	}
	if kind != 0 {
		return 0
	}
	return v
}

// port reads the port by which a packet arrived or left: an ifIndex, or zero for other kinds.
func (x *xdrReader) port(expanded bool) uint32 {
	const internal = math.MaxUint32 >> 2 // the switch itself
	kind := uint32(0)
	v := x.uint32()
	if expanded {
		kind, v = v, x.uint32()
	} else {
		kind, v = v>>30, v&internal
	}
	if kind != 0 || v == internal || v == math.MaxUint32 {
		return 0
	}
	return v
}
