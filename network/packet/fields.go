package packet

import (
	"net/netip"

	"github.com/sluice-net/sluice/openflow"
)

// Fields returns the headers as match fields with exact values, without the in-port: the values
// that a switch compares with the matches of its rules.
func (h *Headers) Fields() []openflow.OXM {
	f := make([]openflow.OXM, 0, 13) // with room for the in-port
	f = append(f, openflow.EthDst(h.EthDst), openflow.EthSrc(h.EthSrc), openflow.EthType(h.EthType))
	if h.Has(VLAN) {
		f = append(f, openflow.VLANVID(h.VLANID), openflow.VLANPCP(h.VLANPCP))
	} else {
		f = append(f, openflow.NoVLAN())
	}
	switch {
	case h.Has(IPv4):
		f = append(f, openflow.IPSrc(h.Src), openflow.IPDst(h.Dst))
	case h.Has(IPv6):
		f = append(f, ipv6Field(openflow.FieldIPv6Src, h.Src), ipv6Field(openflow.FieldIPv6Dst, h.Dst))
	case h.Has(ARP):
		return append(f, openflow.ARPOp(h.ARPOp), openflow.ARPSPA(h.Src), openflow.ARPTPA(h.Dst), openflow.ARPSHA(h.ARPSHA), openflow.ARPTHA(h.ARPTHA))
	case h.Has(MPLS):
		return append(f, openflow.MPLSLabel(h.MPLSLabel), openflow.MPLSTC(h.MPLSTC))
	default:
		return f
	}
	f = append(f, openflow.IPProto(h.Proto), openflow.IPDSCP(h.DSCP), openflow.IPECN(h.ECN))
	return append(f, h.transportFields()...)
}

// transportFields returns the match fields of the transport header.
func (h *Headers) transportFields() []openflow.OXM {
	switch {
	case h.Has(TCP):
		return []openflow.OXM{openflow.TCPSrc(h.SrcPort), openflow.TCPDst(h.DstPort), openflow.TCPFlags(h.TCPFlags, 0xfff)}
	case h.Has(UDP):
		return []openflow.OXM{openflow.UDPSrc(h.SrcPort), openflow.UDPDst(h.DstPort)}
	case h.Has(SCTP):
		return []openflow.OXM{openflow.SCTPSrc(h.SrcPort), openflow.SCTPDst(h.DstPort)}
	case h.Has(ICMPv4):
		return []openflow.OXM{openflow.ICMPv4Type(h.ICMPType), openflow.ICMPv4Code(h.ICMPCode)}
	case h.Has(ICMPv6):
		f := []openflow.OXM{openflow.ICMPv6Type(h.ICMPType), openflow.ICMPv6Code(h.ICMPCode)}
		if h.NDTarget.IsValid() && h.ICMPType != Redirect { // OpenFlow does not match the target of a redirect
			f = append(f, ipv6Field(openflow.FieldNDTarget, h.NDTarget))
		}
		return f
	}
	return nil
}

// ipv6Field returns a field with an address as it is in the packet: the constructors of package
// openflow would treat a mapped IPv4 address as IPv4.
func ipv6Field(f openflow.Field, a netip.Addr) openflow.OXM {
	return openflow.OXM{Field: f, Value: a.As16()}
}
