package packet

import (
	"net/netip"

	"github.com/sluice-net/sluice/openflow"
)

// Fields are the headers as match fields with exact values, all but the port by which
// the frame came in: what a switch compares with the matches of its rules.
func (h *Headers) Fields() []openflow.OXM {
	f := make([]openflow.OXM, 0, 13) // and the port
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
		f = append(f, ipv6(openflow.FieldIPv6Src, h.Src), ipv6(openflow.FieldIPv6Dst, h.Dst))
	case h.Has(ARP):
		return append(f, openflow.ARPOp(h.ARPOp), openflow.ARPSPA(h.Src), openflow.ARPTPA(h.Dst), openflow.ARPSHA(h.ARPSHA), openflow.ARPTHA(h.ARPTHA))
	case h.Has(MPLS):
		return append(f, openflow.MPLSLabel(h.MPLSLabel), openflow.MPLSTC(h.MPLSTC))
	default:
		return f
	}
	f = append(f, openflow.IPProto(h.Proto), openflow.IPDSCP(h.DSCP), openflow.IPECN(h.ECN))
	return append(f, h.transport()...)
}

// transport are the fields of what IP carries.
func (h *Headers) transport() []openflow.OXM {
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
		if h.NDTarget.IsValid() && h.ICMPType != Redirect { // whose target OpenFlow does not match
			f = append(f, ipv6(openflow.FieldNDTarget, h.NDTarget))
		}
		return f
	}
	return nil
}

// ipv6 is a field with an address as the packet has it: the constructors of package
// openflow take an IPv4 address mapped into IPv6 for one of IPv4.
func ipv6(f openflow.Field, a netip.Addr) openflow.OXM {
	return openflow.OXM{Field: f, Value: a.As16()}
}
