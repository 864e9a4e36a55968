package match

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// MaxMatches bounds the matches of one description, because each becomes a rule on every switch.
const MaxMatches = 64

// Parse returns matches that together select exactly the described packets, or all faults
// of the description.
func (f *Flow) Parse() ([]openflow.Match, kit.Faults) {
	p := parser{flow: f}
	if n, given := p.read("eth_type", f.EthType, etherTypes, 0x0600, 0xffff, "ipv4, ipv6, arp, or an ethertype like 0x0800 (0x0600 to 0xffff)"); given {
		p.types, p.typesBy = []uint16{n}, "eth_type"
	}
	if n, given := p.read("ip_proto", f.IPProto, protocols, 0, 0xff, "tcp, udp, sctp, icmp, icmpv6, or a number, 0 to 255"); given {
		p.protos, p.protosBy = []uint16{n}, "ip_proto"
		p.restrict("ip_proto", f.IPProto, anyIP)
	}
	for i := range fields {
		p.readField(&fields[i])
	}
	if f.VLANPCP != "" && f.VLANVID == "" {
		p.fail("vlan_pcp", f.VLANPCP, "vlan_vid beside it: a packet without a tag has no priority")
	}
	if *f == (Flow{}) {
		p.fail("", "", "at least one field, like ipv4_dst: without any, every packet of the network is meant")
	}
	if len(p.faults) > 0 {
		return nil, p.faults
	}
	return p.matches()
}

// parser collects the values of a description's fields.
type parser struct {
	flow   *Flow
	faults kit.Faults
	// values holds, for each field, the values of which a packet must have one.
	values [][]openflow.OXM
	// types holds the ethertypes that are still possible, nil for all. protos holds the protocol.
	// typesBy and protosBy name the fields that determined them, for messages.
	types, protos     []uint16
	typesBy, protosBy string
}

func (p *parser) fail(field string, value Text, want string) {
	p.faults.Add(field, string(value), "%s", want)
}

// read parses a number that may be written as a name, and reports whether it is given and valid.
func (p *parser) read(field string, text Text, names map[string]uint32, low, high uint32, want string) (n uint16, given bool) {
	v, ok := named(string(text), names, uint64(high))
	if ok = ok && v >= low; !ok && text != "" {
		p.fail(field, text, want)
	}
	return uint16(v), ok
}

func (p *parser) readField(fd *field) {
	text := fd.of(p.flow)
	if text == "" {
		return
	}
	values, want := fd.read(string(text))
	if want != "" {
		p.fail(fd.name, text, want)
		return
	}
	p.values = append(p.values, values)
	if fd.types != nil && !p.restrict(fd.name, text, fd.types) {
		return
	}
	if fd.proto == 0 {
		return
	}
	if p.protos != nil && p.protos[0] != uint16(fd.proto) {
		p.fail(fd.name, text, fmt.Sprintf("nothing: %s says that the packets are of IP protocol %d, and this field is of protocol %d", p.protosBy, p.protos[0], fd.proto))
		return
	}
	if p.protos == nil {
		p.protos, p.protosBy = []uint16{uint16(fd.proto)}, fd.name
	}
}

// restrict records that a field exists only in packets of the given types, and reports whether such
// packets are still possible.
func (p *parser) restrict(name string, text Text, types []uint16) bool {
	if p.types == nil {
		p.types, p.typesBy = slices.Clone(types), name
		return true
	}
	left := slices.DeleteFunc(slices.Clone(p.types), func(t uint16) bool { return !slices.Contains(types, t) })
	if len(left) == 0 {
		p.fail(name, text, fmt.Sprintf("nothing: %s says that the packets are of type %#04x, which have no %s", p.typesBy, p.types[0], name))
		return false
	}
	if len(left) < len(p.types) {
		p.types, p.typesBy = left, name
	}
	return true
}

// matches returns one match for each combination of the values of all fields.
func (p *parser) matches() ([]openflow.Match, kit.Faults) {
	all := p.values
	if p.types != nil {
		var types []openflow.OXM
		for _, t := range p.types {
			types = append(types, openflow.EthType(t))
		}
		all = append(all, types)
	}
	if p.protos != nil {
		all = append(all, []openflow.OXM{openflow.IPProto(uint8(p.protos[0]))})
	}
	n := 1
	for _, values := range all {
		n *= len(values)
	}
	if n > MaxMatches {
		return nil, kit.Faults{{Value: n, Want: fmt.Sprintf("simpler port ranges: these make %d rules, at most %d", n, MaxMatches)}}
	}
	var out []openflow.Match
	for i := range n {
		var oxms []openflow.OXM
		for _, values := range all {
			oxms = append(oxms, values[i%len(values)])
			i /= len(values)
		}
		out = append(out, openflow.MustMatch(oxms...)) // every combination that the table allows is valid
	}
	return out, nil
}

// Of returns the exact match of a packet. Another match selects the packet if it covers the exact
// one.
func Of(inPort uint32, h *packet.Headers) openflow.Match {
	m, err := openflow.NewMatch(append(h.Fields(), openflow.InPort(inPort))...)
	if err != nil { // cannot happen: the parser has read each of these fields from the frame
		return openflow.Match{}
	}
	return m
}
