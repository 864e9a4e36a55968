package openflow

import (
	"net/netip"
	"slices"
	"strings"
)

// A sample is a message that the tests encode, decode, print, and show to
// ovs-ofctl.
type sample struct {
	name string
	msg  Message
	// ovs lists what ovs-ofctl must print for it. What Open vSwitch does not
	// implement has the one error that it gives; tshark judges it instead.
	ovs []string
}

// refused reports whether Open vSwitch does not implement what the sample uses.
func (s *sample) refused() bool {
	return len(s.ovs) == 1 && strings.HasPrefix(s.ovs[0], "OFPB") && s.msg.MsgType() != TypeError
}

func samples() []sample {
	return slices.Concat(sessionSamples(), flowSamples(), matchSamples(), actionSamples(),
		groupSamples(), requestSamples(), replySamples(), experimenterSamples())
}

var (
	mac1   = MAC{0x02, 0, 0, 0, 0, 0x01}
	mac2   = MAC{0x02, 0, 0, 0, 0, 0x02}
	v4     = netip.MustParseAddr("10.1.2.3")
	v6     = netip.MustParseAddr("2001:db8::1")
	frame  = append(append(append([]byte{}, mac2[:]...), mac1[:]...), 0x88, 0xb5, 's', 'l', 'u', 'i', 'c', 'e')
	uplink = Port{
		Number: 3, MAC: mac1, Name: "uplink", Config: PortConfigNoFwd, State: PortStateLive,
		Current: 1<<6 | 1<<12, Advertised: 1 << 6, Supported: 1<<5 | 1<<6, Peer: 1 << 6, CurrSpeed: 10_000_000, MaxSpeed: 10_000_000,
	}
)

func sessionSamples() []sample {
	return []sample{
		{"hello", NewHello(), []string{"OFPT_HELLO (OF1.3)", "version bitmap: 0x04"}},
		{"hello-without-bitmap", &Hello{Version: 4}, []string{"OFPT_HELLO (OF1.3)", "version bitmap: 0x01, 0x02, 0x03, 0x04"}},
		{"hello-of-1.5", &Hello{Version: 6, Versions: 1<<4 | 1<<6}, []string{"OFPT_HELLO (OF1.5)", "version bitmap: 0x04, 0x06"}},
		{"echo-request", &EchoRequest{Data: []byte("ping")}, []string{"OFPT_ECHO_REQUEST (OF1.3)", "4 bytes of payload"}},
		{"echo-reply", &EchoReply{}, []string{"OFPT_ECHO_REPLY (OF1.3)", "0 bytes of payload"}},
		{"features-request", &FeaturesRequest{}, []string{"OFPT_FEATURES_REQUEST (OF1.3)"}},
		{
			"features-reply", &FeaturesReply{DatapathID: 0xa1, Buffers: 256, Tables: 254, AuxiliaryID: 1, Capabilities: 0x16f},
			[]string{"dpid:00000000000000a1", "n_tables:254, n_buffers:256, auxiliary_id:1", "FLOW_STATS TABLE_STATS PORT_STATS GROUP_STATS IP_REASM QUEUE_STATS"},
		},
		{"get-config-request", &GetConfigRequest{}, []string{"OFPT_GET_CONFIG_REQUEST (OF1.3)"}},
		{"get-config-reply", &GetConfigReply{Config{FragReassemble, 128}}, []string{"frags=reassemble miss_send_len=128"}},
		{"set-config", &SetConfig{Config{FragNormal, MaxLenNoBuffer}}, []string{"frags=normal miss_send_len=65535"}},
		{"barrier-request", &BarrierRequest{}, []string{"OFPT_BARRIER_REQUEST (OF1.3)"}},
		{"barrier-reply", &BarrierReply{}, []string{"OFPT_BARRIER_REPLY (OF1.3)"}},
		{"role-request", &RoleRequest{RoleMaster, 7}, []string{"OFPT_ROLE_REQUEST", "role=primary generation_id=7"}},
		{"role-reply", &RoleReply{RoleSlave, 8}, []string{"OFPT_ROLE_REPLY", "role=secondary generation_id=8"}},
		{"get-async-request", &GetAsyncRequest{}, []string{"OFPT_GET_ASYNC_REQUEST (OF1.3)"}},
		{"set-async", &SetAsync{AsyncConfig{[2]uint32{3, 0}, [2]uint32{7, 7}, [2]uint32{15, 0}}}, []string{
			"OFPT_SET_ASYNC", "PACKET_IN: no_match action", "PORT_STATUS: add delete modify", "FLOW_REMOVED: idle hard delete group_delete", "PACKET_IN: (off)",
		}},
		{"get-async-reply", &GetAsyncReply{AsyncConfig{PacketIn: [2]uint32{1, 4}}}, []string{"OFPT_GET_ASYNC_REPLY", "PACKET_IN: no_match", "PACKET_IN: invalid_ttl"}},
		{"port-status", &PortStatus{PortModified, uplink}, []string{
			"OFPT_PORT_STATUS", "MOD: 3(uplink): addr:02:00:00:00:00:01", "NO_FWD", "LIVE", "10GB-FD FIBER", "1GB-FD 10GB-FD", "10000 Mbps now, 10000 Mbps max",
		}},
		{"port-mod", &PortMod{Port: 3, MAC: mac1, Config: PortConfigDown, Mask: PortConfigDown | PortConfigNoFwd, Advertise: 1 << 5}, []string{
			"OFPT_PORT_MOD", "port: 3: addr:02:00:00:00:00:01", "config: PORT_DOWN", "mask:   PORT_DOWN NO_FWD", "advertise: 1GB-FD",
		}},
		{"table-mod", &TableMod{Table: 5}, []string{"OFPT_TABLE_MOD", "table_id=5"}},
		{"error", &Error{Code: FlowModTableFull, Data: mustAppend(&BarrierRequest{})}, []string{"OFPT_ERROR", "OFPFMFC_TABLE_FULL", "OFPT_BARRIER_REQUEST"}},
		{"error-hello", &Error{Code: HelloIncompatible, Data: []byte("speak 1.3")}, []string{"OFPHFC_INCOMPATIBLE", "speak 1.3"}},
		{"error-bundle", &Error{Code: NewErrorCode(ErrorTypeExperimenter, 2313), Experimenter: ExperimenterONF, Data: mustAppend(&BarrierRequest{})}, []string{"OFPBFC_MSG_FAILED"}},
	}
}

func mustAppend(m Message) []byte {
	b, err := m.AppendTo(nil, 0x2a)
	if err != nil {
		panic(err)
	}
	return b
}

func flowSamples() []sample {
	punt := NewFlowMod(FlowAdd, 0, 1000, MustMatch(InPort(1), EthType(0x800), IPProto(6), IPDst(v4), TCPDst(80)),
		ApplyActions(OutputController(128)))
	punt.Cookie, punt.IdleTimeout, punt.HardTimeout, punt.Flags = 0x51_1ce, 10, 600, FlagSendFlowRemoved|FlagCheckOverlap
	remove := NewFlowMod(FlowDeleteStrict, 2, 7, MustMatch(EthDst(mac1)))
	remove.OutPort, remove.Cookie, remove.CookieMask = 9, 0x10, 0xff
	sweep := NewFlowMod(FlowDelete, TableAll, 0, Match{})
	sweep.Cookie, sweep.CookieMask, sweep.OutGroup = 0x5100000000000000, 0xff00000000000000, 3
	counters := NewFlowMod(FlowModify, 1, 1, Match{}, Meter(3), ApplyActions(Output(PortInPort)), ClearActions(),
		WriteActions(Output(PortNormal)), WriteMetadata(0x12, 0xff), GotoTable(2))
	counters.Flags = FlagResetCounts | FlagNoByteCounts | FlagNoPacketCounts
	return []sample{
		{"flow-add", punt, []string{
			"ADD priority=1000,tcp,in_port=1,nw_dst=10.1.2.3,tp_dst=80", "cookie:0x511ce", "idle:10", "hard:600", "send_flow_rem check_overlap", "actions=CONTROLLER:128",
		}},
		{"flow-delete-strict", remove, []string{"DEL_STRICT table:2 priority=7,dl_dst=02:00:00:00:00:01", "out_port:9", "cookie:0x10/0xff"}},
		{"flow-delete-by-cookie", sweep, []string{"DEL table:255", "cookie:0x5100000000000000/0xff00000000000000"}},
		{"flow-all-instructions", counters, []string{
			"MOD table:1 priority=1", "reset_counts no_packet_counts no_byte_counts",
			"meter:3,IN_PORT,clear_actions,write_actions(NORMAL),write_metadata:0x12/0xff,goto_table:2",
		}},
		{"flow-drop", NewFlowMod(FlowModifyStrict, 0, 65535, MustMatch(EthType(0x806))), []string{"MOD_STRICT priority=65535,arp actions=drop"}},
		{"packet-in", &PacketIn{BufferID: NoBuffer, TotalLen: uint16(len(frame)), Reason: ReasonAction, Table: 2, Cookie: 0xabc, InPort: 3, Data: frame}, []string{
			"OFPT_PACKET_IN", "table_id=2 cookie=0xabc", "total_len=20 in_port=3 (via action) data_len=20 (unbuffered)", "dl_type=0x88b5",
		}},
		{"packet-in-with-metadata", &PacketIn{
			BufferID: 7, TotalLen: 1500, Reason: ReasonNoMatch,
			Fields: OXMs(MustMatch(InPort(3), Metadata(0x77), TunnelID(0x99)).wire), Data: frame,
		}, []string{"in_port=3", "metadata=0x77", "tun_id=0x99", "(via no_match)", "buffer=0x00000007", "total_len=1500"}},
		{"packet-out", NewPacketOut(PortController, []Action{SetField(EthSrc(mac2)), Output(2), Output(PortTable)}, frame), []string{
			"OFPT_PACKET_OUT", "in_port=CONTROLLER", "actions=set_field:02:00:00:00:00:02->eth_src,output:2,TABLE", "data_len=20",
		}},
		{"packet-out-buffered", &PacketOut{BufferID: 5, InPort: 1, Actions: []Action{Output(PortFlood)}}, []string{"in_port=1 actions=FLOOD buffer=0x00000005"}},
		{"flow-removed", &FlowRemoved{
			Cookie: 0x51, Priority: 9, Reason: RemovedIdle, Table: 1, Duration: Duration{3, 500_000_000}, IdleTimeout: 10, HardTimeout: 20,
			Packets: 5, Bytes: 640, Match: MustMatch(EthType(0x86dd), IPDst(v6)),
		}, []string{"OFPT_FLOW_REMOVED", "priority=9,ipv6,ipv6_dst=2001:db8::1 reason=idle", "table_id=1 cookie:0x51 duration3.500s idle10 hard20 pkts5 bytes640"}},
	}
}

// flow wraps a match into a message.
func flow(oxms ...OXM) Message {
	return NewFlowMod(FlowAdd, 0, 1, MustMatch(oxms...), ApplyActions(Output(2)))
}

func matchSamples() []sample {
	ip4, ip6, arp, mpls := EthType(0x800), EthType(0x86dd), EthType(0x806), EthType(0x8847)
	wide := netip.MustParsePrefix("2001:db8::/32")
	return []sample{
		{"match-all", flow(), []string{"ADD priority=1 actions=output:2"}},
		{"match-ethernet", flow(EthDst(MAC{1}).WithMask(0x010000000000), EthSrc(mac2), EthType(0x88b5)), []string{
			"dl_src=02:00:00:00:00:02,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,dl_type=0x88b5",
		}},
		{"match-metadata", flow(Metadata(0x1200).WithMask(0xff00), TunnelID(5), InPort(PortLocal)), []string{"tun_id=0x5,metadata=0x1200/0xff00,in_port=LOCAL"}},
		{"match-vlan", flow(VLANVID(10), VLANPCP(5)), []string{"dl_vlan=10,dl_vlan_pcp=5"}},
		{"match-no-vlan", flow(NoVLAN()), []string{"vlan_tci=0x0000/0x1fff"}},
		{"match-any-vlan", flow(AnyVLAN()), []string{"vlan_tci=0x1000/0x1000"}},
		{"match-ipv4", flow(ip4, IPDSCP(46), IPECN(2), IPProto(47), IPSrcPrefix(netip.MustParsePrefix("10.0.0.0/8")), IPDst(v4)), []string{
			"ip,nw_src=10.0.0.0/8,nw_dst=10.1.2.3,nw_proto=47,nw_tos=184,nw_ecn=2",
		}},
		{"match-tcp", flow(ip4, IPProto(6), TCPSrc(0x1400).WithMask(0xfc00), TCPDst(80), TCPFlags(0x02, 0x12)), []string{"tcp,tp_src=0x1400/0xfc00,tp_dst=80,tcp_flags=+syn-ack"}},
		{"match-tcp-flags-exact", flow(ip6, IPProto(6), TCPFlags(0x12, 0xfff)), []string{"tcp6,tcp_flags=syn|ack"}},
		{"match-udp", flow(ip4, IPProto(17), UDPSrc(53), UDPDst(5353)), []string{"udp,tp_src=53,tp_dst=5353"}},
		{"match-sctp", flow(ip6, IPProto(132), SCTPSrc(1), SCTPDst(2)), []string{"sctp6,tp_src=1,tp_dst=2"}},
		{"match-icmp", flow(ip4, IPProto(1), ICMPv4Type(8), ICMPv4Code(0)), []string{"icmp,icmp_type=8,icmp_code=0"}},
		{"match-arp", flow(arp, ARPOp(1), ARPSPA(v4), ARPTPA(netip.MustParseAddr("10.1.2.4")), ARPSHA(mac1), ARPTHA(mac2)), []string{
			"arp,arp_spa=10.1.2.3,arp_tpa=10.1.2.4,arp_op=1,arp_sha=02:00:00:00:00:01,arp_tha=02:00:00:00:00:02",
		}},
		{"match-ipv6", flow(ip6, IPSrcPrefix(wide), IPDst(v6), IPv6FlowLabel(0x12345)), []string{"ipv6,ipv6_src=2001:db8::/32,ipv6_dst=2001:db8::1,ipv6_label=0x12345"}},
		{"match-ipv6-gapped-mask", flow(ip6, OXM{Field: FieldIPv6Dst, Masked: true, Value: [16]byte{0x20, 15: 1}, Mask: [16]byte{0xff, 15: 0xff}}), []string{"ipv6_dst=2000::1/ff00::ff"}},
		{"match-icmpv6", flow(ip6, IPProto(58), ICMPv6Type(128), ICMPv6Code(0)), []string{"icmp6,icmp_type=128,icmp_code=0"}},
		{"match-nd-solicit", flow(ip6, IPProto(58), ICMPv6Type(135), NDTarget(v6), NDSLL(mac1)), []string{"icmp_type=135,nd_target=2001:db8::1,nd_sll=02:00:00:00:00:01"}},
		{"match-nd-advert", flow(ip6, IPProto(58), ICMPv6Type(136), NDTarget(v6), NDTLL(mac2)), []string{"icmp_type=136,nd_target=2001:db8::1,nd_tll=02:00:00:00:00:02"}},
		{"match-mpls", flow(mpls, MPLSLabel(0xabcde), MPLSTC(3), MPLSBOS(1)), []string{"mpls,mpls_label=703710,mpls_tc=3,mpls_bos=1"}},
		{"match-pbb", flow(EthType(0x88e7), PBBISID(0x123400).WithMask(0xffff00)), []string{"OFPBMC_BAD_FIELD"}},
		{"match-exthdr", flow(ip6, IPv6ExtHdr(0x40).WithMask(0x1c0)), []string{"OFPBMC_BAD_FIELD"}},
		{"match-phy-port", flow(InPort(4), InPhyPort(5)), []string{"OFPBMC_BAD_FIELD"}},
	}
}

func actionSamples() []sample {
	do := func(etherType uint16, actions ...Action) Message {
		return NewFlowMod(FlowAdd, 0, 1, MustMatch(EthType(etherType)), ApplyActions(actions...))
	}
	tcp := func(actions ...Action) Message {
		return NewFlowMod(FlowAdd, 0, 1, MustMatch(EthType(0x800), IPProto(6)), ApplyActions(actions...))
	}
	return []sample{
		{"action-outputs", do(0x88b5, Output(1), Output(PortAll), Output(PortLocal), Output(PortController)), []string{"actions=output:1,ALL,LOCAL,CONTROLLER:65535"}},
		{"action-vlan", do(0x88b5, PushVLAN(0x8100), SetField(VLANVID(10)), SetField(VLANPCP(3)), PopVLAN()), []string{
			"push_vlan:0x8100,set_field:4106->vlan_vid,set_field:3->vlan_pcp,pop_vlan",
		}},
		{"action-mpls", do(0x800, PushMPLS(0x8847), SetField(MPLSLabel(16)), SetField(MPLSTC(1)), SetMPLSTTL(9), DecMPLSTTL(), PopMPLS(0x800)), []string{
			"push_mpls:0x8847,set_field:16->mpls_label,set_field:1->mpls_tc,set_mpls_ttl(9),dec_mpls_ttl,pop_mpls:0x0800",
		}},
		{"action-rewrite", tcp(SetField(EthSrc(mac1)), SetField(IPSrc(v4)), SetField(IPDSCP(46)), SetField(IPECN(1)), SetField(TCPSrc(9877)), SetField(TunnelID(8)), SetNWTTL(3), DecNWTTL()), []string{
			"set_field:02:00:00:00:00:01->eth_src,set_field:10.1.2.3->ip_src,set_field:46->ip_dscp,set_field:1->nw_ecn,set_field:9877->tcp_src,set_field:0x8->tun_id,mod_nw_ttl:3,dec_ttl",
		}},
		{"action-rewrite-v6", NewFlowMod(FlowAdd, 0, 1, MustMatch(EthType(0x86dd), IPProto(17)), ApplyActions(SetField(IPDst(v6)), SetField(UDPDst(53)), SetField(IPv6FlowLabel(7)))), []string{
			"set_field:2001:db8::1->ipv6_dst,set_field:53->udp_dst,set_field:0x7->ipv6_label",
		}},
		{"action-queue-group", do(0x88b5, SetQueue(4), GroupAction(77)), []string{"set_queue:4,group:77"}},
		{"action-ttl-copies", do(0x8847, CopyTTLOut(), CopyTTLIn()), []string{"OFPBAC_BAD_TYPE"}},
		{"action-pbb", do(0x88b5, PushPBB(0x88e7), PopPBB()), []string{"OFPBAC_BAD_TYPE"}},
		{"action-experimenter", do(0x88b5, ExperimenterAction(0x1234, make([]byte, 8))), []string{"OFPBAC_BAD_VENDOR"}},
		// resubmit(5), an action of Open vSwitch, kept whole
		{"action-nicira", do(0x88b5, ExperimenterAction(ExperimenterNicira, []byte{0, 1, 0, 5, 0, 0, 0, 0})), []string{"resubmit:5"}},
	}
}
