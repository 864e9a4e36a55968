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

// ErrMalformed is returned for a datagram that is not sFlow version 5, or whose lengths do
// not add up.
var ErrMalformed = errors.New("sflow: malformed datagram")

// Datagram is what is used of a datagram. Parse fills it anew; slices of bytes lie
// within the datagram.
type Datagram struct {
	// Agent and SubAgent name the sender, as it says itself.
	Agent    netip.Addr
	SubAgent uint32
	// Sequence numbers the datagrams of one sender.
	Sequence uint32
	Counters []Counters
	Packets  []Packet
}

// Counters are a reading of a port's counters.
type Counters struct {
	// Index is the port's ifIndex.
	Index uint32
	// Port is the switch and OpenFlow port, zero if the sender does not say.
	Port topology.PortRef
	// Known tells whether there are counters at all.
	Known bool
	stats.Counters
}

// Packet is one packet that stands for many.
type Packet struct {
	// Rate is the number of packets of which this one was taken.
	Rate uint32
	// In and Out are the ifIndexes it came in and left by, zero if that is not one
	// port or not known.
	In, Out uint32
	// Length is that of the frame, without what was taken off it, like the checksum.
	// Header is its beginning.
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

// Parse reads a datagram.
func (d *Datagram) Parse(b []byte) error {
	*d = Datagram{Counters: d.Counters[:0], Packets: d.Packets[:0]}
	x := xdr{b: b}
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
	x.uint32() // how long the agent has been running
	samples := x.uint32()
	for i := range samples {
		format, body := x.record()
		if x.short {
			return fmt.Errorf("%w: %d bytes end within sample %d of %d", ErrMalformed, len(b), i+1, samples)
		}
		d.sample(format, &body)
		if body.short {
			return fmt.Errorf("%w: sample %d of %d, of format %#x, is longer than it says", ErrMalformed, i+1, samples, format)
		}
	}
	if x.short {
		return fmt.Errorf("%w: %d bytes are too few for a header", ErrMalformed, len(b))
	}
	return nil
}

// sample reads one sample, if it is of a kind that is used.
func (d *Datagram) sample(format uint32, x *xdr) {
	switch format {
	case sampleCounters, sampleCounterExpanded:
		d.counters(x, format == sampleCounterExpanded)
	case samplePacket, samplePacketExpanded:
		d.packet(x, format == samplePacketExpanded)
	}
}

func (d *Datagram) counters(x *xdr, expanded bool) {
	x.uint32() // number of the sample
	c := Counters{Index: x.source(expanded)}
	for range x.uint32() {
		format, body := x.record()
		if x.short {
			return
		}
		switch format {
		case counterGeneric:
			c.generic(&body)
		case counterOpenFlow:
			c.Port = topology.PortRef{Switch: openflow.DatapathID(body.uint64()), Port: body.uint32()}
		}
		x.short = x.short || body.short
	}
	d.Counters = append(d.Counters, c)
}

// generic reads the interface counters, those of SNMP's ifTable.
func (c *Counters) generic(x *xdr) {
	x.uint32() // ifIndex again
	x.uint32() // type
	x.uint64() // speed
	x.uint32() // duplex
	x.uint32() // state
	c.RxBytes, c.RxPackets = x.uint64(), x.packets()
	c.RxDropped, c.RxErrors = x.counter32(), x.counter32()
	x.uint32() // of unknown protocols
	c.TxBytes, c.TxPackets = x.uint64(), x.packets()
	c.TxDropped, c.TxErrors = x.counter32(), x.counter32()
	x.uint32() // promiscuous or not
	c.Known = !x.short
}

// packets reads the counters of unicast, multicast and broadcast packets. The sum
// wraps where each of them does. An agent that does not tell broadcasts apart
// (Open vSwitch) has all packets in the first, also those of the second.
func (x *xdr) packets() uint64 {
	unicast, multicast, broadcast := x.counter32(), x.counter32(), x.counter32()
	if unicast == stats.Unsupported || multicast == stats.Unsupported || broadcast == stats.Unsupported {
		return unicast
	}
	return uint64(uint32(unicast + multicast + broadcast))
}

func (d *Datagram) packet(x *xdr, expanded bool) {
	x.uint32() // number of the sample
	x.source(expanded)
	p := Packet{Rate: x.uint32()}
	x.uint32() // packets that could have been taken
	x.uint32() // samples that were lost
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

// source reads what a sample is of: an ifIndex, zero for anything else.
func (x *xdr) source(expanded bool) uint32 {
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

// port reads where a packet came in or went: an ifIndex, zero for anything else.
func (x *xdr) port(expanded bool) uint32 {
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
