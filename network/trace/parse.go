package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Description is a packet described by a person.
type Description struct {
	// At is the port at which the packet arrives. Switch, Port or both are zero if the
	// description does not name them; the caller then derives them from the source address.
	At     topology.PortRef
	Packet Packet
	// Said holds the fields that the description gives; Parse fills in the others.
	Said map[openflow.Field]bool
}

// ParseError names the wrong word of a description, and says what would be right.
type ParseError struct {
	// Word is the wrong word, at Offset bytes into the description.
	Word   string
	Offset int
	Detail string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("packet description: %q at character %d: %s", e.Word, e.Offset+1, e.Detail)
}

// protocols maps words to an EtherType and an IP protocol number.
var protocols = map[string]struct {
	ether uint16
	proto uint8
}{
	"ip": {packet.TypeIPv4, 0}, "ipv4": {packet.TypeIPv4, 0}, "ipv6": {packet.TypeIPv6, 0}, "arp": {packet.TypeARP, 0},
	"icmp": {packet.TypeIPv4, packet.ProtoICMP}, "icmp6": {packet.TypeIPv6, packet.ProtoICMPv6}, "icmpv6": {packet.TypeIPv6, packet.ProtoICMPv6},
	"tcp": {packet.TypeIPv4, packet.ProtoTCP}, "tcp6": {packet.TypeIPv6, packet.ProtoTCP},
	"udp": {packet.TypeIPv4, packet.ProtoUDP}, "udp6": {packet.TypeIPv6, packet.ProtoUDP},
	"sctp": {packet.TypeIPv4, packet.ProtoSCTP}, "sctp6": {packet.TypeIPv6, packet.ProtoSCTP},
	"mpls": {packet.TypeMPLS, 0},
}

// aliases maps alternative names of fields to the names that this package uses. Which field a name
// for addresses or ports means depends on the rest of the description; parser.field decides that.
var aliases = map[string]string{
	"dl_src": "eth_src", "dl_dst": "eth_dst", "dl_type": "eth_type", "dl_vlan": "vlan_vid", "vlan": "vlan_vid", "dl_vlan_pcp": "vlan_pcp",
	"nw_src": "ip_src", "nw_dst": "ip_dst", "src": "ip_src", "dst": "ip_dst", "nw_proto": "ip_proto", "nw_ttl": "ttl",
	"ip_ttl": "ttl", "tun_id": "tunnel_id", "ipv6_src": "ip_src", "ipv6_dst": "ip_dst",
	"sport": "tp_src", "dport": "tp_dst", "dpid": "switch",
}

// Parse reads a packet from words such as "tcp,in_port=1,nw_src=10.0.0.1,
// nw_dst=10.0.0.2,tp_dst=80" or "switch=00000000000000a1 tcp6 src=fd00::1 dst=fd00::2 dport=443
// tcp_flags=syn", separated by commas or blanks. Fields that are not given are zero, as in
// ofproto/trace, except for the TTL, which is 64.
func Parse(s string) (Description, error) {
	p := parser{given: map[string]bool{}, d: Description{Packet: NewPacket(openflow.NoVLAN()), Said: map[openflow.Field]bool{}}}
	words := split(s)
	if len(words) == 0 {
		return Description{}, &ParseError{Word: s, Detail: "is empty: say at least addresses, as in tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80"}
	}
	slices.SortStableFunc(words, func(a, b word) int { return a.rank() - b.rank() })
	for _, w := range words {
		if err := p.word(w); err != nil {
			return Description{}, &ParseError{Word: w.text, Offset: w.offset, Detail: err.Error()}
		}
	}
	p.fillIn()
	return p.d, nil
}

type parser struct {
	d     Description
	given map[string]bool
}

func (p *parser) word(w word) error {
	if p.given[w.name] {
		return fmt.Errorf("%s is given twice", w.name)
	}
	p.given[w.name] = true
	if k, ok := protocols[w.name]; ok {
		if w.hasValue {
			return fmt.Errorf("%s takes no value", w.name)
		}
		return p.setProtocol(k.ether, k.proto)
	}
	if !w.hasValue || w.value == "" {
		return fmt.Errorf("want a protocol (%s) or field=value", strings.Join(protocolNames(), ", "))
	}
	switch w.name {
	case "switch":
		id, err := openflow.ParseDatapathID(w.value)
		p.d.At.Switch = id
		return err
	case "in_port":
		n, err := number(w.value, 32)
		if err == nil && (n == 0 || n > uint64(openflow.PortMax)) {
			return fmt.Errorf("a port number is 1 to %d", openflow.PortMax)
		}
		p.d.At.Port = uint32(n)
		p.set(openflow.InPort(uint32(n)))
		return err
	case "ttl":
		n, err := number(w.value, 8)
		p.d.Packet.TTL = uint8(n)
		return err
	}
	o, err := p.field(w.name, w.value)
	if err != nil {
		return err
	}
	p.set(o)
	return nil
}

func protocolNames() []string {
	var names []string
	for n := range protocols {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (p *parser) set(o openflow.OXM) {
	p.d.Packet = p.d.Packet.With(o)
	p.d.Said[o.Field] = true
}

// setProtocol sets EtherType and IP protocol. It returns an error if they contradict earlier
// words.
func (p *parser) setProtocol(ether uint16, proto uint8) error {
	if have, ok := p.d.Packet.Get(openflow.FieldEthType); ok && have.Uint() != uint64(ether) {
		return fmt.Errorf("contradicts %v", have)
	}
	p.set(openflow.EthType(ether))
	if proto == 0 {
		return nil
	}
	if have, ok := p.d.Packet.Get(openflow.FieldIPProto); ok && have.Uint() != uint64(proto) {
		return fmt.Errorf("contradicts %v", have)
	}
	p.set(openflow.IPProto(proto))
	return nil
}

// field reads one field. Earlier words must have given its prerequisites.
func (p *parser) field(name, value string) (openflow.OXM, error) {
	switch name {
	case "ip_src", "ip_dst":
		return p.address(name, value)
	case "tp_src", "tp_dst":
		return p.transportPort(name, value)
	case "nw_tos":
		n, err := number(value, 8)
		if err == nil && n&3 != 0 {
			err = fmt.Errorf("the lower two bits are ECN: give ip_ecn for them")
		}
		return openflow.IPDSCP(uint8(n >> 2)), err
	case "vlan_vid":
		n, err := number(value, 12)
		return openflow.VLANVID(uint16(n & 0xfff)), err
	case "tcp_flags":
		n, err := tcpFlags(value)
		if err == nil {
			err = p.checkPrerequisites(openflow.FieldTCPFlags)
		}
		return openflow.OXM{Field: openflow.FieldTCPFlags, Value: openflow.TCPFlags(n, 0xfff).Value}, err
	}
	f, err := openflow.ParseField(name)
	if err != nil {
		return openflow.OXM{}, fmt.Errorf("there is no field %q: want a protocol, switch, in_port, ttl or a match field as ovs-ofctl has them", name)
	}
	if err := p.checkPrerequisites(f); err != nil {
		return openflow.OXM{}, err
	}
	return parseValue(f, value)
}

// address chooses the field by the address family, and sets the EtherType if none was given.
func (p *parser) address(name, value string) (openflow.OXM, error) {
	a, err := netip.ParseAddr(value)
	if err != nil || a.Zone() != "" {
		return openflow.OXM{}, fmt.Errorf("%q is not an IPv4 or IPv6 address", value)
	}
	a = a.Unmap()
	ether, have := uint16(packet.TypeIPv4), p.etherType()
	if a.Is6() {
		ether = packet.TypeIPv6
	}
	switch {
	case have == 0:
		p.set(openflow.EthType(ether))
	case have == packet.TypeARP && a.Is4():
		if name == "ip_src" {
			return openflow.ARPSPA(a), nil
		}
		return openflow.ARPTPA(a), nil
	case have != ether && have == packet.TypeIPv4:
		return openflow.OXM{}, fmt.Errorf("%v is an IPv6 address and the packet IPv4: want tcp6, udp6, icmp6 or ipv6", a)
	case have != ether:
		return openflow.OXM{}, fmt.Errorf("%v does not fit a packet of ethertype %#04x", a, have)
	}
	if name == "ip_src" {
		return openflow.IPSrc(a), nil
	}
	return openflow.IPDst(a), nil
}

func (p *parser) etherType() uint16 {
	o, _ := p.d.Packet.Get(openflow.FieldEthType)
	return uint16(o.Uint())
}

func (p *parser) transportPort(name, value string) (openflow.OXM, error) {
	n, err := number(value, 16)
	if err != nil {
		return openflow.OXM{}, err
	}
	proto, _ := p.d.Packet.Get(openflow.FieldIPProto)
	makers := map[uint64][2]func(uint16) openflow.OXM{
		packet.ProtoTCP:  {openflow.TCPSrc, openflow.TCPDst},
		packet.ProtoUDP:  {openflow.UDPSrc, openflow.UDPDst},
		packet.ProtoSCTP: {openflow.SCTPSrc, openflow.SCTPDst},
	}
	side := 0
	if name == "tp_dst" {
		side = 1
	}
	m, ok := makers[proto.Uint()]
	if !ok {
		return openflow.OXM{}, fmt.Errorf("a port needs a protocol: say tcp, udp or sctp (or tcp6, udp6, sctp6) too")
	}
	return m[side](uint16(n)), nil
}

// checkPrerequisites returns an error if the packet lacks a prerequisite of the field.
func (p *parser) checkPrerequisites(f openflow.Field) error {
	fields := []openflow.OXM{{Field: f}}
	for _, k := range []openflow.Field{openflow.FieldEthType, openflow.FieldIPProto, openflow.FieldICMPv6Type, openflow.FieldVLANVID, openflow.FieldInPort} {
		if o, ok := p.d.Packet.Get(k); ok && k != f {
			fields = append(fields, o)
		}
	}
	_, err := openflow.NewMatch(fields...)
	return err
}

func parseValue(f openflow.Field, value string) (openflow.OXM, error) {
	o := openflow.OXM{Field: f}
	size := f.Bytes()
	switch {
	case size == 6:
		m, err := openflow.ParseMAC(value)
		copy(o.Value[:], m[:])
		return o, err
	case size == 16 || f == openflow.FieldARPSPA || f == openflow.FieldARPTPA:
		a, err := netip.ParseAddr(value)
		if err != nil || a.Zone() != "" || a.BitLen() != size*8 {
			return o, fmt.Errorf("%q is not an IPv%d address", value, map[int]int{4: 4, 16: 6}[size])
		}
		copy(o.Value[:], a.AsSlice())
		return o, nil
	}
	n, err := number(value, f.Bits())
	for i := range size {
		o.Value[i] = byte(n >> (8 * (size - 1 - i)))
	}
	return o, err
}

// number parses a decimal or 0x number of at most this many bits.
func number(s string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil || bits < 64 && n>>bits != 0 {
		if bits == 64 {
			return 0, fmt.Errorf("%q is not a number of up to 64 bits", s)
		}
		return 0, fmt.Errorf("%q is not a number from 0 to %d", s, uint64(1)<<bits-1)
	}
	return n, nil
}

var flagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"}

// tcpFlags parses a number or names: syn, syn|ack, +syn-ack.
func tcpFlags(s string) (uint16, error) {
	if n, err := strconv.ParseUint(s, 0, 12); err == nil {
		return uint16(n), nil
	}
	var flags uint16
	for rest := strings.ToLower(s); rest != ""; {
		clear := rest[0] == '-'
		rest = strings.TrimLeft(rest, "+-|")
		end := strings.IndexAny(rest, "+-|")
		if end < 0 {
			end = len(rest)
		}
		i := slices.Index(flagNames, rest[:end])
		if i < 0 {
			return 0, fmt.Errorf("%q is no TCP flag: want a number or some of %s, as in +syn or syn|ack", rest[:end], strings.Join(flagNames, ", "))
		}
		if !clear {
			flags |= 1 << i
		}
		rest = rest[end:]
	}
	return flags, nil
}

// fillIn sets the other fields that a packet of this kind has to zero.
func (p *parser) fillIn() {
	fill := func(os ...openflow.OXM) {
		for _, o := range os {
			if !p.d.Packet.Has(o.Field) {
				p.d.Packet = p.d.Packet.With(o)
			}
		}
	}
	zero4, zero6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	fill(openflow.EthSrc(openflow.MAC{}), openflow.EthDst(openflow.MAC{}), openflow.EthType(0))
	switch p.etherType() {
	case packet.TypeARP:
		fill(openflow.ARPOp(packet.ARPRequest), openflow.ARPSPA(zero4), openflow.ARPTPA(zero4),
			openflow.ARPSHA(openflow.MAC{}), openflow.ARPTHA(openflow.MAC{}))
		return
	case packet.TypeIPv4:
		fill(openflow.IPSrc(zero4), openflow.IPDst(zero4))
	case packet.TypeIPv6:
		fill(openflow.IPSrc(zero6), openflow.IPDst(zero6))
	default:
		return
	}
	fill(openflow.IPProto(0), openflow.IPDSCP(0), openflow.IPECN(0))
	proto, _ := p.d.Packet.Get(openflow.FieldIPProto)
	switch proto.Uint() {
	case packet.ProtoTCP:
		flags := openflow.TCPFlags(0, 0xfff)
		flags.Masked, flags.Mask = false, [16]byte{}
		fill(openflow.TCPSrc(0), openflow.TCPDst(0), flags)
	case packet.ProtoUDP:
		fill(openflow.UDPSrc(0), openflow.UDPDst(0))
	case packet.ProtoSCTP:
		fill(openflow.SCTPSrc(0), openflow.SCTPDst(0))
	case packet.ProtoICMP:
		fill(openflow.ICMPv4Type(0), openflow.ICMPv4Code(0))
	case packet.ProtoICMPv6:
		fill(openflow.ICMPv6Type(0), openflow.ICMPv6Code(0))
	}
}
