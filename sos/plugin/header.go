package plugin

import (
	"net/netip"

	"github.com/sluice-net/sluice/openflow"
)

const (
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	etherTypeVLAN = 0x8100
	protoTCP      = 6
)

// header is what the rules of a session look at and change in a packet.
type header struct {
	vlan           uint16
	ethSrc, ethDst openflow.MAC
	src, dst       netip.AddrPort
}

// part is one piece of a header that a switch may or may not be able to set.
type part uint8

const (
	partVLAN part = iota
	partEthSrc
	partEthDst
	partIPSrc
	partIPDst
	partTCPSrc
	partTCPDst
	partCount
)

var partNames = [partCount]string{"vlan", "eth_src", "eth_dst", "ip_src", "ip_dst", "tcp_src", "tcp_dst"}

// field is the OpenFlow field that carries the part in a packet of h's family.
func (p part) field(h header) openflow.Field {
	v4 := h.src.Addr().Is4()
	switch p {
	case partVLAN:
		return openflow.FieldVLANVID
	case partEthSrc:
		return openflow.FieldEthSrc
	case partEthDst:
		return openflow.FieldEthDst
	case partIPSrc:
		if v4 {
			return openflow.FieldIPv4Src
		}
		return openflow.FieldIPv6Src
	case partIPDst:
		if v4 {
			return openflow.FieldIPv4Dst
		}
		return openflow.FieldIPv6Dst
	case partTCPSrc:
		return openflow.FieldTCPSrc
	default:
		return openflow.FieldTCPDst
	}
}

// changes lists the parts in which two headers differ. A zero MAC in either
// means that the address is left as it is.
func changes(from, to header) []part {
	var out []part
	add := func(p part, differ bool) {
		if differ {
			out = append(out, p)
		}
	}
	add(partVLAN, from.vlan != to.vlan)
	add(partEthSrc, !to.ethSrc.IsZero() && from.ethSrc != to.ethSrc)
	add(partEthDst, !to.ethDst.IsZero() && from.ethDst != to.ethDst)
	add(partIPSrc, from.src.Addr() != to.src.Addr())
	add(partIPDst, from.dst.Addr() != to.dst.Addr())
	add(partTCPSrc, from.src.Port() != to.src.Port())
	add(partTCPDst, from.dst.Port() != to.dst.Port())
	return out
}

// set copies one part of another header.
func (h *header) set(p part, from header) {
	switch p {
	case partVLAN:
		h.vlan = from.vlan
	case partEthSrc:
		h.ethSrc = from.ethSrc
	case partEthDst:
		h.ethDst = from.ethDst
	case partIPSrc:
		h.src = netip.AddrPortFrom(from.src.Addr(), h.src.Port())
	case partIPDst:
		h.dst = netip.AddrPortFrom(from.dst.Addr(), h.dst.Port())
	case partTCPSrc:
		h.src = netip.AddrPortFrom(h.src.Addr(), from.src.Port())
	case partTCPDst:
		h.dst = netip.AddrPortFrom(h.dst.Addr(), from.dst.Port())
	}
}

// rewrite returns the actions that set the part to its value in to.
func (p part) rewrite(from, to header) []openflow.Action {
	switch p {
	case partVLAN:
		return retag(from.vlan, to.vlan)
	case partEthSrc:
		return []openflow.Action{openflow.SetField(openflow.EthSrc(to.ethSrc))}
	case partEthDst:
		return []openflow.Action{openflow.SetField(openflow.EthDst(to.ethDst))}
	case partIPSrc:
		return []openflow.Action{openflow.SetField(openflow.IPSrc(to.src.Addr()))}
	case partIPDst:
		return []openflow.Action{openflow.SetField(openflow.IPDst(to.dst.Addr()))}
	case partTCPSrc:
		return []openflow.Action{openflow.SetField(openflow.TCPSrc(to.src.Port()))}
	default:
		return []openflow.Action{openflow.SetField(openflow.TCPDst(to.dst.Port()))}
	}
}

// retag moves a packet from one VLAN to another; zero is untagged.
func retag(from, to uint16) []openflow.Action {
	switch {
	case from == to:
		return nil
	case to == 0:
		return []openflow.Action{openflow.PopVLAN()}
	case from == 0:
		return []openflow.Action{openflow.PushVLAN(etherTypeVLAN), openflow.SetField(openflow.VLANVID(to))}
	default:
		return []openflow.Action{openflow.SetField(openflow.VLANVID(to))}
	}
}

// match selects exactly the packets of one TCP connection that enter by a port.
// Untagged packets are matched without a VLAN field, as in the published table.
func (h header) match(inPort uint32) (openflow.Match, error) {
	return h.matchWith(openflow.InPort(inPort))
}

// matchAnywhere is the same for all ports.
func (h header) matchAnywhere() (openflow.Match, error) { return h.matchWith() }

func (h header) matchWith(fields ...openflow.OXM) (openflow.Match, error) {
	if h.vlan != 0 {
		fields = append(fields, openflow.VLANVID(h.vlan))
	}
	fields = append(
		fields,
		openflow.EthType(etherType(h.src.Addr())), openflow.IPProto(protoTCP),
		openflow.IPSrc(h.src.Addr()), openflow.IPDst(h.dst.Addr()),
		openflow.TCPSrc(h.src.Port()), openflow.TCPDst(h.dst.Port()),
	)
	return openflow.NewMatch(fields...)
}

func etherType(a netip.Addr) uint16 {
	if a.Is4() {
		return etherTypeIPv4
	}
	return etherTypeIPv6
}

// output sends to a port; a packet only leaves by the port it came from if told
// so by the reserved port's name.
func output(in, out uint32) openflow.Action {
	if in == out {
		return openflow.Output(openflow.PortInPort)
	}
	return openflow.Output(out)
}
