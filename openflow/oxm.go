package openflow

import (
	"fmt"
	"net/netip"
)

// OXM is one field of a match, with its value. If Masked is true, only the bits of the value that
// are set in Mask count. Value and Mask are big endian and begin at byte 0; bytes beyond the
// field's size are zero.
type OXM struct {
	Field       Field
	Masked      bool
	Value, Mask [16]byte
}

func oxmUint(f Field, v uint64) OXM {
	o := OXM{Field: f}
	putUint(o.Value[:fields[f].size], v)
	return o
}

func oxmMAC(f Field, m MAC) OXM {
	o := OXM{Field: f}
	copy(o.Value[:], m[:])
	return o
}

// oxmAddr returns the field v4 or v6, by the family of the address. v4 or v6 is FieldInvalid if
// there is no such field for that family.
func oxmAddr(v4, v6 Field, a netip.Addr) OXM {
	a = a.Unmap()
	o := OXM{Field: FieldInvalid}
	switch {
	case a.Is4() && v4 != FieldInvalid:
		v := a.As4()
		o.Field = v4
		copy(o.Value[:], v[:])
	case a.Is6() && v6 != FieldInvalid:
		o.Field = v6
		o.Value = a.As16()
	}
	return o
}

func oxmPrefix(v4, v6 Field, p netip.Prefix) OXM {
	if !p.IsValid() {
		return OXM{Field: FieldInvalid}
	}
	addr, bits := p.Addr(), p.Bits()
	if addr.Is4In6() {
		if bits < 96 {
			return OXM{Field: FieldInvalid}
		}
		addr, bits = addr.Unmap(), bits-96
	}
	o := oxmAddr(v4, v6, netip.PrefixFrom(addr, bits).Masked().Addr())
	if bits == addr.BitLen() {
		return o
	}
	o.Masked = true
	for i := range bits {
		o.Mask[i/8] |= 0x80 >> (i % 8)
	}
	return o
}

func putUint(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte(v)
		v >>= 8
	}
}

func getUint(b []byte) uint64 {
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// InPort matches the port a packet came in by.
func InPort(port uint32) OXM { return oxmUint(FieldInPort, uint64(port)) }

// InPhyPort matches the physical port beneath a logical one.
func InPhyPort(port uint32) OXM { return oxmUint(FieldInPhyPort, uint64(port)) }

// Metadata matches the value that earlier tables have written for later ones.
func Metadata(v uint64) OXM { return oxmUint(FieldMetadata, v) }

// EthDst matches the Ethernet destination.
func EthDst(m MAC) OXM { return oxmMAC(FieldEthDst, m) }

// EthSrc matches the Ethernet source.
func EthSrc(m MAC) OXM { return oxmMAC(FieldEthSrc, m) }

// EthType matches the type of the Ethernet payload, after VLAN tags.
func EthType(t uint16) OXM { return oxmUint(FieldEthType, uint64(t)) }

// VLANVID matches (or, in set-field, writes) the VLAN identifier of a tagged packet. It sets the
// bit for the presence of a tag.
func VLANVID(vid uint16) OXM {
	if vid >= vlanPresent {
		return OXM{Field: FieldInvalid}
	}
	return oxmUint(FieldVLANVID, uint64(vid)|vlanPresent)
}

// NoVLAN matches packets without a VLAN tag.
func NoVLAN() OXM { return oxmUint(FieldVLANVID, 0) }

// AnyVLAN matches packets with a VLAN tag, whatever its identifier.
func AnyVLAN() OXM { return oxmUint(FieldVLANVID, vlanPresent).WithMask(vlanPresent) }

// VLANPCP matches the priority in the VLAN tag.
func VLANPCP(p uint8) OXM { return oxmUint(FieldVLANPCP, uint64(p)) }

// IPDSCP matches the six bits of the differentiated services code point.
func IPDSCP(v uint8) OXM { return oxmUint(FieldIPDSCP, uint64(v)) }

// IPECN matches the two bits of explicit congestion notification.
func IPECN(v uint8) OXM { return oxmUint(FieldIPECN, uint64(v)) }

// IPProto matches the protocol in IPv4 or IPv6.
func IPProto(p uint8) OXM { return oxmUint(FieldIPProto, uint64(p)) }

// IPSrc matches the source address; the address chooses the IPv4 or IPv6 field.
func IPSrc(a netip.Addr) OXM { return oxmAddr(FieldIPv4Src, FieldIPv6Src, a) }

// IPDst matches the destination address; the address chooses the field.
func IPDst(a netip.Addr) OXM { return oxmAddr(FieldIPv4Dst, FieldIPv6Dst, a) }

// IPSrcPrefix matches source addresses within a prefix.
func IPSrcPrefix(p netip.Prefix) OXM { return oxmPrefix(FieldIPv4Src, FieldIPv6Src, p) }

// IPDstPrefix matches destination addresses within a prefix.
func IPDstPrefix(p netip.Prefix) OXM { return oxmPrefix(FieldIPv4Dst, FieldIPv6Dst, p) }

// TCPSrc matches the TCP source port.
func TCPSrc(port uint16) OXM { return oxmUint(FieldTCPSrc, uint64(port)) }

// TCPDst matches the TCP destination port.
func TCPDst(port uint16) OXM { return oxmUint(FieldTCPDst, uint64(port)) }

// UDPSrc matches the UDP source port.
func UDPSrc(port uint16) OXM { return oxmUint(FieldUDPSrc, uint64(port)) }

// UDPDst matches the UDP destination port.
func UDPDst(port uint16) OXM { return oxmUint(FieldUDPDst, uint64(port)) }

// SCTPSrc matches the SCTP source port.
func SCTPSrc(port uint16) OXM { return oxmUint(FieldSCTPSrc, uint64(port)) }

// SCTPDst matches the SCTP destination port.
func SCTPDst(port uint16) OXM { return oxmUint(FieldSCTPDst, uint64(port)) }

// ICMPv4Type matches the ICMP type.
func ICMPv4Type(t uint8) OXM { return oxmUint(FieldICMPv4Type, uint64(t)) }

// ICMPv4Code matches the ICMP code.
func ICMPv4Code(c uint8) OXM { return oxmUint(FieldICMPv4Code, uint64(c)) }

// ARPOp matches the ARP operation: 1 request, 2 reply.
func ARPOp(op uint16) OXM { return oxmUint(FieldARPOp, uint64(op)) }

// ARPSPA matches the sender's IPv4 address in ARP.
func ARPSPA(a netip.Addr) OXM { return oxmAddr(FieldARPSPA, FieldInvalid, a) }

// ARPTPA matches the target's IPv4 address in ARP.
func ARPTPA(a netip.Addr) OXM { return oxmAddr(FieldARPTPA, FieldInvalid, a) }

// ARPSHA matches the sender's Ethernet address in ARP.
func ARPSHA(m MAC) OXM { return oxmMAC(FieldARPSHA, m) }

// ARPTHA matches the target's Ethernet address in ARP.
func ARPTHA(m MAC) OXM { return oxmMAC(FieldARPTHA, m) }

// IPv6FlowLabel matches the 20 bits of the flow label.
func IPv6FlowLabel(v uint32) OXM { return oxmUint(FieldIPv6FlowLabel, uint64(v)) }

// ICMPv6Type matches the ICMPv6 type.
func ICMPv6Type(t uint8) OXM { return oxmUint(FieldICMPv6Type, uint64(t)) }

// ICMPv6Code matches the ICMPv6 code.
func ICMPv6Code(c uint8) OXM { return oxmUint(FieldICMPv6Code, uint64(c)) }

// NDTarget matches the target address of IPv6 neighbour discovery.
func NDTarget(a netip.Addr) OXM { return oxmAddr(FieldInvalid, FieldNDTarget, a) }

// NDSLL matches the source link-layer address of a neighbour solicitation.
func NDSLL(m MAC) OXM { return oxmMAC(FieldNDSLL, m) }

// NDTLL matches the target link-layer address of a neighbour advertisement.
func NDTLL(m MAC) OXM { return oxmMAC(FieldNDTLL, m) }

// MPLSLabel matches the label of the outermost MPLS shim.
func MPLSLabel(v uint32) OXM { return oxmUint(FieldMPLSLabel, uint64(v)) }

// MPLSTC matches the traffic class of the outermost MPLS shim.
func MPLSTC(v uint8) OXM { return oxmUint(FieldMPLSTC, uint64(v)) }

// MPLSBOS matches the bottom-of-stack bit of the outermost MPLS shim.
func MPLSBOS(v uint8) OXM { return oxmUint(FieldMPLSBOS, uint64(v)) }

// PBBISID matches the 24 bits of the service identifier of provider backbone
// bridging.
func PBBISID(v uint32) OXM { return oxmUint(FieldPBBISID, uint64(v)) }

// TunnelID matches the metadata of a logical port, for instance a VXLAN
// network identifier.
func TunnelID(v uint64) OXM { return oxmUint(FieldTunnelID, v) }

// IPv6ExtHdr matches which IPv6 extension headers are present.
func IPv6ExtHdr(v uint16) OXM { return oxmUint(FieldIPv6ExtHdr, uint64(v)) }

// TCPFlags matches the TCP flags that are set in mask. It is an experimenter field of the ONF
// (EXT-109), which Open vSwitch supports with OpenFlow 1.3.
func TCPFlags(value, mask uint16) OXM {
	return oxmUint(FieldTCPFlags, uint64(value)).WithMask(uint64(mask))
}

// WithMask returns o matching only the bits that are set in mask, a number as
// wide as the field. The field must not be wider than 64 bits; for longer ones
// set Masked and Mask, or use a prefix.
func (o OXM) WithMask(mask uint64) OXM {
	if !o.Field.Valid() || o.Field.Bytes() > 8 {
		return OXM{Field: FieldInvalid}
	}
	o.Masked = true
	putUint(o.Mask[:o.Field.Bytes()], mask)
	return o
}

// Uint returns the value as a number. For a field wider than 64 bits it
// returns the last 64.
func (o OXM) Uint() uint64 { return o.number(load(&o.Value)) }

// MaskUint returns the mask as a number; all bits of the field when o is exact.
func (o OXM) MaskUint() uint64 { return o.number(o.fullMask()) }

// number returns the last 64 bits of the field in w, which holds the field's value or mask.
func (o *OXM) number(w word) uint64 {
	switch n := len(o.value()); {
	case n == 0:
		return 0
	case n > 8:
		return w.lo
	default:
		return w.hi >> (64 - 8*n)
	}
}

// MAC returns the value of a field that holds an Ethernet address.
func (o OXM) MAC() MAC { return MAC(o.Value[:6]) }

// Addr returns the value of a field that holds an IP address; the zero Addr
// for other fields.
func (o OXM) Addr() netip.Addr {
	if o.Field.Valid() {
		switch fields[o.Field].format {
		case asIPv4:
			return netip.AddrFrom4([4]byte(o.Value[:4]))
		case asIPv6:
			return netip.AddrFrom16(o.Value)
		}
	}
	return netip.Addr{}
}

func (o *OXM) value() []byte {
	if !o.Field.Valid() {
		return nil
	}
	return o.Value[:fields[o.Field].size]
}

// A word is a value or mask of 128 bits, so that checks need no loops.
type word struct{ hi, lo uint64 }

func load(b *[16]byte) word { return word{be.Uint64(b[:8]), be.Uint64(b[8:])} }

func (w word) store() (b [16]byte) {
	be.PutUint64(b[:8], w.hi)
	be.PutUint64(b[8:], w.lo)
	return b
}

func (w word) and(o word) word    { return word{w.hi & o.hi, w.lo & o.lo} }
func (w word) within(o word) bool { return w.hi&^o.hi|w.lo&^o.lo == 0 }

// fieldMasks holds, for each field, the bits that may be set.
var fieldMasks = func() (masks [numFields]word) {
	for f := range fields {
		var b [16]byte
		size, bits := int(fields[f].size), int(fields[f].bits)
		for i := size*8 - bits; i < size*8; i++ {
			b[i/8] |= 0x80 >> (i % 8)
		}
		masks[f] = load(&b)
	}
	return masks
}()

// fullMask returns the mask, or the bits of the whole field when o is exact.
func (o *OXM) fullMask() word {
	if o.Masked {
		return load(&o.Mask)
	}
	return fieldMasks[o.Field]
}

// normalize changes o to its canonical form: bits outside the mask are zero, and a mask of all
// bits is no mask. It reports whether no bit is significant.
func (o *OXM) normalize() (wild bool) {
	if !o.Masked {
		o.Mask = [16]byte{}
		return false
	}
	limit := fieldMasks[o.Field]
	m := load(&o.Mask).and(limit)
	if m == limit {
		o.Masked, o.Mask = false, [16]byte{}
		return false
	}
	o.Mask, o.Value = m.store(), load(&o.Value).and(m).store()
	return m == word{}
}

// check returns an error for a value or mask that the field does not allow.
func (o *OXM) check() error {
	if !o.Field.Valid() {
		return fmt.Errorf("openflow: %w: a field was made from an address or number that it cannot hold", ErrMatch)
	}
	limit, v := fieldMasks[o.Field], load(&o.Value)
	if !v.within(limit) {
		return o.refuse("the value is wider than the field's %d bits", o.Field.Bits())
	}
	if !o.Masked {
		return nil
	}
	m := load(&o.Mask)
	switch {
	case !m.within(limit):
		return o.refuse("the mask is wider than the field's %d bits", o.Field.Bits())
	case !v.within(m):
		return o.refuse("the value has bits outside its mask")
	case fields[o.Field].mask == noMask && m != limit:
		return o.refuse("%s cannot be masked", o.Field)
	}
	return nil
}

// refuse returns an error about o. It takes a copy of o, so that the caller's o need not be on the
// heap.
func (o OXM) refuse(format string, args ...any) error {
	return fmt.Errorf("openflow: %w: %v: %s", ErrMatch, o, fmt.Sprintf(format, args...))
}
