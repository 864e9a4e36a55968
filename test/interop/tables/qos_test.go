package tables

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
)

// description is which packets an operator means, in plain values: a field that has not been
// drawn is open.
type description struct {
	src, dst    netip.Addr
	proto       uint8
	first, last uint16 // destination ports; none if last is zero
	dscp        *uint8
	vlan        *uint16 // zero for packets without a tag
	in          network.PortRef
	frames      bool // of MobilityFirst, to mac
	mac         openflow.MAC
}

// flow is the description as the operator writes it.
func (d *description) flow() match.Flow {
	if d.frames {
		return match.Flow{EthType: match.Text(fmt.Sprintf("%#x", frame.EtherType)), EthDst: match.Text(d.mac.String())}
	}
	var f match.Flow
	text := func(v any) match.Text { return match.Text(fmt.Sprint(v)) }
	if d.src.IsValid() {
		f.IPv4Src = text(d.src)
	}
	if d.dst.IsValid() {
		f.IPv4Dst = text(d.dst)
	}
	if d.proto != 0 {
		f.IPProto = text(d.proto)
	}
	if ports := text(fmt.Sprintf("%d-%d", d.first, d.last)); d.last > 0 {
		if d.proto == packet.ProtoTCP {
			f.TCPDst = ports
		} else {
			f.UDPDst = ports
		}
	}
	if d.dscp != nil {
		f.IPDSCP = text(*d.dscp)
	}
	if d.vlan != nil {
		if f.VLANVID = "none"; *d.vlan > 0 {
			f.VLANVID = text(*d.vlan)
		}
	}
	if !d.in.IsZero() {
		f.InPort = text(d.in.Port)
	}
	return f
}

// means says whether a packet that comes in by a port is described. A port's number is that
// of the first switch's.
func (d *description) means(in uint32, h *packet.Headers) bool {
	switch {
	case d.frames:
		return h.EthType == frame.EtherType && h.EthDst == d.mac
	case !h.Has(packet.IPv4),
		d.src.IsValid() && h.Src != d.src,
		d.dst.IsValid() && h.Dst != d.dst,
		d.proto != 0 && h.Proto != d.proto,
		d.last > 0 && (!h.Has(packet.TCP) && !h.Has(packet.UDP) || h.DstPort < d.first || h.DstPort > d.last),
		d.dscp != nil && h.DSCP != *d.dscp,
		d.vlan != nil && h.VLANID != *d.vlan,
		!d.in.IsZero() && in != d.in.Port:
		return false
	}
	return true
}

// drawConnection draws one, mostly such of which something has been declared.
func (w *world) drawConnection(t *rapid.T) connection {
	if rapid.IntRange(0, 3).Draw(t, "the ends have not met") > 0 {
		c := rapid.SampledFrom(w.met).Draw(t, "connection")
		if rapid.Bool().Draw(t, "the other way") {
			c = c.turned()
		}
		return c
	}
	party, port := rapid.IntRange(0, numParties-1), rapid.SampledFrom([]uint16{serverPort - 3, 443, 5000, clientPort, yPort})
	c := connection{party.Draw(t, "from"), party.Draw(t, "to"), clientPort, port.Draw(t, "port")}
	w.met = append(w.met, c)
	return c
}

// drawDescription draws one that names an address, so that it means IPv4.
func (w *world) drawDescription(t *rapid.T) (d description, of connection) {
	of = w.drawConnection(t)
	d.dst = w.parties[of.to].ip
	if rapid.Bool().Draw(t, "the source is named") && of.from != of.to {
		d.src = w.parties[of.from].ip
	}
	d.proto = rapid.SampledFrom([]uint8{0, 0, packet.ProtoTCP, packet.ProtoTCP, packet.ProtoUDP}).Draw(t, "protocol")
	if d.proto != 0 && rapid.Bool().Draw(t, "ports are named") {
		d.first = of.dstPort - rapid.Uint16Range(0, 3).Draw(t, "below")
		d.last = of.dstPort + rapid.Uint16Range(0, 3).Draw(t, "above")
	}
	if rapid.IntRange(0, 3).Draw(t, "DSCP is named") == 0 {
		dscp := rapid.SampledFrom(someDSCPs).Draw(t, "DSCP")
		d.dscp = &dscp
	}
	if rapid.IntRange(0, 5).Draw(t, "VLAN is named") == 0 {
		vlan := rapid.SampledFrom([]uint16{0, 7}).Draw(t, "VLAN")
		d.vlan = &vlan
	}
	return d, of
}

var someDSCPs = []uint8{0, 0, 10, joinMark, 46}

// class is a class that is in the switches.
type class struct {
	description
	priority  uint8
	queue     uint32
	way       classes.Route
	userspace map[openflow.DatapathID]bool // switches that need to know the packets' DSCP
}

// drawClasses draws up to two classes, each of its own priority, and has the switches do what
// they want.
func (w *world) drawClasses(t *rapid.T) {
	first := rapid.Uint8Range(0, 5).Draw(t, "priority")
	for i := range rapid.IntRange(1, 2).Draw(t, "classes") {
		d, of := w.drawDescription(t)
		framed := w.withNames && rapid.Bool().Draw(t, "frames of MobilityFirst")
		if framed {
			d, of = w.framesOf(t)
		}
		c := class{description: d, priority: first + 2*uint8(i), queue: uint32(i + 1), userspace: map[openflow.DatapathID]bool{}}
		if d.src.IsValid() && rapid.IntRange(0, 3).Draw(t, "the port is named") == 0 {
			c.in = w.parties[of.from].at
		}
		for _, sw := range w.top.Switches {
			if rapid.IntRange(0, 3).Draw(t, "userspace") == 0 && !framed {
				c.userspace[sw] = true
			}
		}
		spec := classes.ClassSpec{Name: fmt.Sprint("class", i), Priority: match.Text(fmt.Sprint(c.priority)), Flows: []match.Flow{c.flow()}}
		parsed, faults := spec.Parse()
		if len(faults) > 0 {
			t.Fatalf("class %+v: %v", spec, faults)
		}
		var err error
		if c.way, err = parsed.FindRoute(w.top, 0, w.parties[of.from].host(), w.parties[of.to].host()); err != nil {
			t.Fatalf("class %+v: %v", spec, err)
		}
		p, err := parsed.Rules([]classes.Route{c.way}, c.queue, c.userspace)
		if err != nil {
			t.Fatalf("class %+v: %v", spec, err)
		}
		w.declare(t, "latency", spec.Name, p.Rules)
		w.classes = append(w.classes, c)
	}
}

// criticalTraffic is what is critical, and the flows that have been placed.
type criticalTraffic struct {
	definitions []description
	flows       []placedFlow
	sees        map[openflow.DatapathID]bool
}

// placedFlow is a flow that has been placed: packets like this one, and their answers.
type placedFlow struct {
	first packet.Headers
	path  []network.Hop
}

// drawCritical draws definitions, and flows that have been placed: of what is critical, and of
// what was.
func (w *world) drawCritical(t *rapid.T) {
	c := &criticalTraffic{sees: map[openflow.DatapathID]bool{}}
	w.critical = c
	var definitions []*critical.Definition
	var flows []packet.Headers
	for i := range rapid.IntRange(1, 2).Draw(t, "definitions") {
		d, of := w.drawDescription(t)
		if w.channel != nil && rapid.Bool().Draw(t, "to the address of channels") {
			d.dst = media.Addr()
		}
		parsed, faults := critical.Spec{Name: fmt.Sprint("def", i), Rate: 1e6, Match: d.flow()}.Parse()
		if len(faults) > 0 {
			t.Fatalf("definition %+v: %v", d, faults)
		}
		c.definitions, definitions = append(c.definitions, d), append(definitions, parsed)
		if first := w.segment(of); of.from != of.to && rapid.Bool().Draw(t, "a flow of it has been placed") {
			if d.proto == packet.ProtoUDP {
				datagram(&first)
			}
			flows = append(flows, first)
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "other flows") {
		if of := w.drawConnection(t); of.from != of.to {
			flows = append(flows, w.segment(of))
		}
	}
	for _, sw := range w.top.Switches {
		c.sees[sw] = rapid.Bool().Draw(t, "sees TCP flags")
		w.declare(t, "qos-bandwidth", "punt/"+sw.String(), critical.Punts(sw, definitions).Rules)
	}
	for i, first := range flows {
		w.place(t, fmt.Sprint("flow/", i), first)
	}
}

// segment is one of a connection.
func (w *world) segment(of connection) packet.Headers {
	h := w.between(of.from, of.to)
	h.SrcPort, h.DstPort = of.srcPort, of.dstPort
	return h
}

// placed is the flow of a segment between two parties, on the way of fewest links.
func (w *world) placed(first packet.Headers) placedFlow {
	from, _ := w.Lookup(first.EthSrc, first.VLANID)
	to := slices.IndexFunc(w.parties[:], func(p party) bool { return p.mac == first.EthDst })
	return placedFlow{first, w.path(from, w.parties[to].at)}
}

// place has the switches do what a critical flow wants. There may be one of its packets
// already: the ledger refuses a second.
func (w *world) place(t *rapid.T, key string, first packet.Headers) {
	c, f := w.critical, w.placed(first)
	p, ok := critical.FlowRules(&f.first, network.Path{Hops: f.path}, time.Minute, func(d openflow.DatapathID) bool { return c.sees[d] })
	if !ok {
		t.Fatalf("%+v belongs to no flow", f.first)
	}
	if w.apply(t, "qos-bandwidth", key, p) {
		c.flows = append(c.flows, f)
	}
}
