package packet

import (
	"encoding/binary"
	"net/netip"

	"github.com/sluice-net/sluice/openflow"
)

var be = binary.BigEndian

// Parse parses the headers of an Ethernet frame.
func Parse(frame []byte) (Headers, error) {
	var h Headers
	err := h.Parse(frame)
	return h, err
}

// Parse parses the headers of an Ethernet frame into h.
func (h *Headers) Parse(frame []byte) error {
	*h = Headers{}
	if len(frame) < 14 {
		return ErrTruncated
	}
	h.EthDst = openflow.MAC(frame[0:6])
	h.EthSrc = openflow.MAC(frame[6:12])
	h.Layers = Ethernet
	h.End = len(frame)
	at, err := h.parseTags(frame)
	if err != nil {
		return err
	}
	h.L3 = at
	switch h.EthType {
	case TypeIPv4:
		return h.parseIPv4(frame)
	case TypeIPv6:
		return h.parseIPv6(frame)
	case TypeARP:
		return h.parseARP(frame)
	case TypeMPLS, TypeMPLSMulti:
		return h.parseMPLS(frame)
	case TypeLLDP:
		h.Layers |= LLDP
	}
	return nil
}

// parseTags parses EtherType and VLAN tags, and returns the offset of the payload.
func (h *Headers) parseTags(frame []byte) (int, error) {
	at := 12
	for {
		if len(frame) < at+2 {
			return 0, ErrTruncated
		}
		t := be.Uint16(frame[at:])
		if t != TypeVLAN && t != TypeQinQ && t != TypeQinQOld {
			break
		}
		if len(frame) < at+4 {
			return 0, ErrTruncated
		}
		tci := be.Uint16(frame[at+2:])
		switch h.VLANTags {
		case 0:
			h.Layers |= VLAN
			h.VLANTPID, h.VLANID, h.VLANPCP = t, tci&0xfff, uint8(tci>>13)
		case 1:
			h.InnerVLANID = tci & 0xfff
		}
		if h.VLANTags < 255 {
			h.VLANTags++
		}
		at += 4
	}
	h.EthType = be.Uint16(frame[at:])
	at += 2
	if h.EthType >= 0x0600 {
		return at, nil
	}
	// In IEEE 802.3 the field is a length, and an EtherType may follow in a SNAP header.
	h.EthType = TypeNone
	if len(frame) >= at+8 && [6]byte(frame[at:at+6]) == [6]byte{0xaa, 0xaa, 3} {
		if t := be.Uint16(frame[at+6:]); t >= 0x0600 {
			h.EthType = t
			at += 8
		}
	}
	return at, nil
}

func (h *Headers) parseMPLS(frame []byte) error {
	if len(frame) < h.L3+4 {
		return ErrTruncated
	}
	e := be.Uint32(frame[h.L3:])
	h.MPLSLabel, h.MPLSTC, h.MPLSBottom = e>>12, uint8(e>>9)&7, e&0x100 != 0
	h.TTL = uint8(e)
	h.Layers |= MPLS
	return nil
}

// parseARP parses ARP for IPv4 over Ethernet, and returns ErrLength for other kinds.
func (h *Headers) parseARP(frame []byte) error {
	if len(frame) < h.L3+28 {
		return ErrTruncated
	}
	a := frame[h.L3 : h.L3+28]
	if be.Uint64(a)>>16 != 0x0001_0800_0604 {
		return ErrLength
	}
	h.ARPOp = be.Uint16(a[6:])
	h.ARPSHA, h.ARPTHA = openflow.MAC(a[8:14]), openflow.MAC(a[18:24])
	h.Src, h.Dst = netip.AddrFrom4([4]byte(a[14:18])), netip.AddrFrom4([4]byte(a[24:28]))
	h.Layers |= ARP
	h.End = h.L3 + 28
	return nil
}

func (h *Headers) parseIPv4(frame []byte) error {
	p := frame[h.L3:]
	if len(p) < 20 {
		return ErrTruncated
	}
	if p[0]>>4 != 4 {
		return ErrVersion
	}
	ihl, total := int(p[0]&15)*4, int(be.Uint16(p[2:]))
	if ihl < 20 || total < ihl {
		return ErrLength
	}
	if len(p) < ihl {
		return ErrTruncated
	}
	h.DSCP, h.ECN, h.TTL, h.Proto = p[1]>>2, p[1]&3, p[8], p[9]
	frag := be.Uint16(p[6:])
	h.FragOffset, h.MoreFragments = frag&0x1fff*8, frag&0x2000 != 0
	h.Src, h.Dst = netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
	h.Layers |= IPv4
	h.End = h.L3 + total
	return h.parseTransport(frame, h.L3+ihl)
}

func (h *Headers) parseIPv6(frame []byte) error {
	p := frame[h.L3:]
	if len(p) < 40 {
		return ErrTruncated
	}
	v := be.Uint32(p)
	if v>>28 != 6 {
		return ErrVersion
	}
	h.DSCP, h.ECN, h.FlowLabel = uint8(v>>22)&0x3f, uint8(v>>20)&3, v&0xfffff
	h.Proto, h.TTL = p[6], p[7]
	h.Src, h.Dst = netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40]))
	h.Layers |= IPv6
	h.End = h.L3 + 40 + int(be.Uint16(p[4:]))
	at, err := h.skipExtensions(frame, h.L3+40)
	if err != nil {
		return err
	}
	return h.parseTransport(frame, at)
}

// skipExtensions skips the IPv6 extension headers, sets Proto to the protocol after them, and
// returns its offset. Each step advances by at least eight bytes, so the loop ends.
func (h *Headers) skipExtensions(frame []byte, at int) (int, error) {
	for {
		var size int
		switch h.Proto {
		case 0, 43, 60, 135, 139, 140: // hop-by-hop, routing, destination, mobility, HIP, shim6
			size = 8
		case 44, 51: // fragment, authentication
			size = 8
		default:
			return at, nil
		}
		end := min(h.End, len(frame))
		if at+size > end {
			return 0, ErrTruncated
		}
		switch h.Proto {
		case 44:
			frag := be.Uint16(frame[at+2:])
			h.FragOffset, h.MoreFragments = frag&0xfff8, frag&1 != 0
		case 51:
			size = (int(frame[at+1]) + 2) * 4
		default:
			size = (int(frame[at+1]) + 1) * 8
		}
		if size < 8 {
			return 0, ErrLength
		}
		if at+size > end {
			return 0, ErrTruncated
		}
		h.Proto = frame[at]
		at += size
		if h.FragOffset != 0 { // what follows is data, even if it looks like a header
			return at, nil
		}
	}
}

func (h *Headers) parseTransport(frame []byte, at int) error {
	end := min(h.End, len(frame))
	if at > end {
		return ErrTruncated
	}
	if h.FragOffset != 0 {
		h.Payload = at
		return nil
	}
	h.L4 = at
	p := frame[at:end]
	switch h.Proto {
	case ProtoTCP:
		return h.parseTCP(p)
	case ProtoUDP:
		return h.parsePorts(p, 8, UDP)
	case ProtoSCTP:
		return h.parsePorts(p, 12, SCTP)
	case ProtoICMP:
		if h.Has(IPv4) {
			return h.parseICMP(p, 8, ICMPv4)
		}
	case ProtoICMPv6:
		if h.Has(IPv6) {
			return h.parseICMPv6(p)
		}
	}
	return nil
}

func (h *Headers) parseTCP(p []byte) error {
	if len(p) < 20 {
		return ErrTruncated
	}
	size := int(p[12]>>4) * 4
	if size < 20 {
		return ErrLength
	}
	if len(p) < size {
		return ErrTruncated
	}
	h.SrcPort, h.DstPort = be.Uint16(p), be.Uint16(p[2:])
	h.Seq, h.Ack = be.Uint32(p[4:]), be.Uint32(p[8:])
	h.TCPFlags, h.Window = be.Uint16(p[12:])&0xfff, be.Uint16(p[14:])
	h.Layers |= TCP
	h.Payload = h.L4 + size
	return nil
}

func (h *Headers) parsePorts(p []byte, size int, l Layers) error {
	if len(p) < size {
		return ErrTruncated
	}
	h.SrcPort, h.DstPort = be.Uint16(p), be.Uint16(p[2:])
	h.Layers |= l
	h.Payload = h.L4 + size
	return nil
}

func (h *Headers) parseICMP(p []byte, size int, l Layers) error {
	if len(p) < size {
		return ErrTruncated
	}
	h.ICMPType, h.ICMPCode = p[0], p[1]
	h.Layers |= l
	h.Payload = h.L4 + size
	return nil
}

// parseICMPv6 parses the ICMPv6 header and, for neighbour discovery, target and link-layer
// address.
func (h *Headers) parseICMPv6(p []byte) error {
	if err := h.parseICMP(p, 4, ICMPv6); err != nil {
		return err
	}
	var options int
	switch h.ICMPType {
	case RouterSolicitation:
		options = 8
	case RouterAdvertisement:
		options = 16
	case NeighborSolicitation, NeighborAdvertisement:
		options = 24
	case Redirect:
		options = 40
	default:
		return nil
	}
	if len(p) < options {
		return ErrTruncated
	}
	if options >= 24 {
		h.NDTarget = netip.AddrFrom16([16]byte(p[8:24]))
	}
	wanted := byte(1) // source link-layer address
	switch h.ICMPType {
	case NeighborAdvertisement:
		wanted, h.NDFlags = 2, p[4]&(NDRouter|NDSolicited|NDOverride)
	case Redirect:
		wanted = 2
	}
	return h.parseNDOptions(p[options:], wanted)
}

func (h *Headers) parseNDOptions(p []byte, wanted byte) error {
	for len(p) >= 2 {
		size := int(p[1]) * 8
		if size == 0 {
			return ErrLength
		}
		if size > len(p) {
			return ErrTruncated
		}
		if p[0] == wanted && size == 8 && h.NDLink.IsZero() {
			h.NDLink = openflow.MAC(p[2:8])
		}
		p = p[size:]
	}
	h.Layers |= ND
	return nil
}
