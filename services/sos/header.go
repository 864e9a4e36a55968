package sos

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

// header holds the fields of a packet that a session's rules match and change.
type header struct {
	vlan           uint16
	ethSrc, ethDst openflow.MAC
	src, dst       netip.AddrPort
}

// fields holds the fields of a header in the form in which rules match and set them, in the order
// in which rules set them.
type fields [9]openflow.OXM

// These are the indices of the first fields. The rules of a connection do not match these fields,
// except for the VLAN of tagged packets. Untagged packets are matched without the VLAN, as in the
// published table.
const (
	fieldVLAN = iota
	fieldEthSrc
	fieldEthDst
	matched
)

var fieldNames = [len(fields{})]string{"vlan", "eth_src", "eth_dst", "eth_type", "ip_proto", "ip_src", "ip_dst", "tcp_src", "tcp_dst"}

func (h header) fields() fields {
	return fields{
		openflow.VLANVID(h.vlan), openflow.EthSrc(h.ethSrc), openflow.EthDst(h.ethDst),
		openflow.EthType(etherType(h.src.Addr())), openflow.IPProto(protoTCP),
		openflow.IPSrc(h.src.Addr()), openflow.IPDst(h.dst.Addr()), openflow.TCPSrc(h.src.Port()), openflow.TCPDst(h.dst.Port()),
	}
}

// changes returns the indices of the fields in which to differs from f. A zero MAC address in to
// means that the address stays as it is.
func (f fields) changes(to fields) (out []int) {
	for i := range f {
		kept := (i == fieldEthSrc || i == fieldEthDst) && to[i].MAC().IsZero()
		if f[i] != to[i] && !kept {
			out = append(out, i)
		}
	}
	return out
}

// match returns a match of exactly the packets of one TCP connection, narrowed by the fields more.
func (f fields) match(more ...openflow.OXM) (openflow.Match, error) {
	if f[fieldVLAN] != openflow.VLANVID(0) {
		more = append(more, f[fieldVLAN])
	}
	return openflow.NewMatch(append(more, f[matched:]...)...)
}

func (h header) match(more ...openflow.OXM) (openflow.Match, error) { return h.fields().match(more...) }

// retag returns the actions that move a packet from one VLAN to another. Zero means untagged.
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

func etherType(a netip.Addr) uint16 {
	if a.Is4() {
		return etherTypeIPv4
	}
	return etherTypeIPv6
}
