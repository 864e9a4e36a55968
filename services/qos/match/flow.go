package match

// Flow describes the packets of a flow: those for which all given fields match.
type Flow struct {
	InPort     Text `json:"in_port,omitempty" yaml:"in_port" doc:"Number of the switch port by which packets come in." example:"3"`
	EthSrc     Text `json:"eth_src,omitempty" yaml:"eth_src" doc:"Source MAC address."`
	EthDst     Text `json:"eth_dst,omitempty" yaml:"eth_dst" doc:"Destination MAC address."`
	EthType    Text `json:"eth_type,omitempty" yaml:"eth_type" doc:"Ethertype: ipv4, ipv6, arp, or a number like 0x0800."`
	VLANVID    Text `json:"vlan_vid,omitempty" yaml:"vlan_vid" doc:"VLAN, 1 to 4094, or none."`
	VLANPCP    Text `json:"vlan_pcp,omitempty" yaml:"vlan_pcp" doc:"Priority in the VLAN tag, 0 to 7; needs vlan_vid."`
	IPProto    Text `json:"ip_proto,omitempty" yaml:"ip_proto" doc:"IP protocol: tcp, udp, sctp, icmp, icmpv6, or a number."`
	IPDSCP     Text `json:"ip_dscp,omitempty" yaml:"ip_dscp" doc:"DSCP, 0 to 63."`
	IPECN      Text `json:"ip_ecn,omitempty" yaml:"ip_ecn" doc:"ECN bits, 0 to 3."`
	IPv4Src    Text `json:"ipv4_src,omitempty" yaml:"ipv4_src" doc:"Source IPv4 address or prefix." example:"\"10.0.0.0/24\""`
	IPv4Dst    Text `json:"ipv4_dst,omitempty" yaml:"ipv4_dst" doc:"Destination IPv4 address or prefix."`
	IPv6Src    Text `json:"ipv6_src,omitempty" yaml:"ipv6_src" doc:"Source IPv6 address or prefix."`
	IPv6Dst    Text `json:"ipv6_dst,omitempty" yaml:"ipv6_dst" doc:"Destination IPv6 address or prefix."`
	TCPSrc     Text `json:"tcp_src,omitempty" yaml:"tcp_src" doc:"TCP source port or range."`
	TCPDst     Text `json:"tcp_dst,omitempty" yaml:"tcp_dst" doc:"TCP destination port or range." example:"\"5000-5100\""`
	UDPSrc     Text `json:"udp_src,omitempty" yaml:"udp_src" doc:"UDP source port or range."`
	UDPDst     Text `json:"udp_dst,omitempty" yaml:"udp_dst" doc:"UDP destination port or range."`
	SCTPSrc    Text `json:"sctp_src,omitempty" yaml:"sctp_src" doc:"SCTP source port or range."`
	SCTPDst    Text `json:"sctp_dst,omitempty" yaml:"sctp_dst" doc:"SCTP destination port or range."`
	ICMPv4Type Text `json:"icmpv4_type,omitempty" yaml:"icmpv4_type" doc:"ICMP type, 0 to 255."`
	ICMPv4Code Text `json:"icmpv4_code,omitempty" yaml:"icmpv4_code" doc:"ICMP code, 0 to 255."`
	ICMPv6Type Text `json:"icmpv6_type,omitempty" yaml:"icmpv6_type" doc:"ICMPv6 type, 0 to 255."`
	ICMPv6Code Text `json:"icmpv6_code,omitempty" yaml:"icmpv6_code" doc:"ICMPv6 code, 0 to 255."`
}
