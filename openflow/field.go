package openflow

import "fmt"

// Field is a match field: the index of its row in the table of fields. The forty fields of OpenFlow
// 1.3 have the same number here as on the wire.
type Field uint8

// The match fields.
const (
	FieldInPort Field = iota
	FieldInPhyPort
	FieldMetadata
	FieldEthDst
	FieldEthSrc
	FieldEthType
	FieldVLANVID
	FieldVLANPCP
	FieldIPDSCP
	FieldIPECN
	FieldIPProto
	FieldIPv4Src
	FieldIPv4Dst
	FieldTCPSrc
	FieldTCPDst
	FieldUDPSrc
	FieldUDPDst
	FieldSCTPSrc
	FieldSCTPDst
	FieldICMPv4Type
	FieldICMPv4Code
	FieldARPOp
	FieldARPSPA
	FieldARPTPA
	FieldARPSHA
	FieldARPTHA
	FieldIPv6Src
	FieldIPv6Dst
	FieldIPv6FlowLabel
	FieldICMPv6Type
	FieldICMPv6Code
	FieldNDTarget
	FieldNDSLL
	FieldNDTLL
	FieldMPLSLabel
	FieldMPLSTC
	FieldMPLSBOS
	FieldPBBISID
	FieldTunnelID
	FieldIPv6ExtHdr
	FieldTCPFlags // experimenter field of the ONF (EXT-109)

	numFields

	// FieldInvalid is set by constructors that are given an invalid address; NewMatch and the
	// encoders refuse it.
	FieldInvalid Field = 0xff
)

type format uint8

const (
	asDecimal format = iota
	asHex
	asMAC
	asIPv4
	asIPv6
	asPort
	asVLAN
	asTCPFlags
)

type maskRule uint8

const (
	noMask       maskRule = iota
	mask                  // by the specification
	maskExtended          // by Open vSwitch, beyond the specification
)

// prereq is a prerequisite of a field: another field must be matched exactly, with one of values.
// If values is empty, any match of that field suffices. If bits is not zero, it suffices that these
// bits of the other field's value are set.
type prereq struct {
	field  Field
	values []uint64
	bits   uint64
}

type fieldInfo struct {
	name   string // as ovs-ofctl accepts it
	num    uint8  // number within the class
	exp    uint32 // experimenter; 0: class OPENFLOW_BASIC
	size   uint8  // bytes on the wire
	bits   uint8  // bits that may be set
	mask   maskRule
	set    bool // may be written by a set-field action
	format format
	needs  []prereq
}

const (
	etherIPv4  = 0x0800
	etherARP   = 0x0806
	etherIPv6  = 0x86dd
	etherMPLS  = 0x8847
	etherMPLSM = 0x8848
	etherPBB   = 0x88e7

	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	protoSCTP   = 132

	vlanPresent = 0x1000
)

func ether(types ...uint64) prereq { return prereq{field: FieldEthType, values: types} }
func proto(p uint64) prereq        { return prereq{field: FieldIPProto, values: []uint64{p}} }
func icmp6(types ...uint64) prereq { return prereq{field: FieldICMPv6Type, values: types} }

var (
	needIP     = []prereq{ether(etherIPv4, etherIPv6)}
	needIPv4   = []prereq{ether(etherIPv4)}
	needIPv6   = []prereq{ether(etherIPv6)}
	needARP    = []prereq{ether(etherARP)}
	needMPLS   = []prereq{ether(etherMPLS, etherMPLSM)}
	needPBB    = []prereq{ether(etherPBB)}
	needTCP    = []prereq{ether(etherIPv4, etherIPv6), proto(protoTCP)}
	needUDP    = []prereq{ether(etherIPv4, etherIPv6), proto(protoUDP)}
	needSCTP   = []prereq{ether(etherIPv4, etherIPv6), proto(protoSCTP)}
	needICMP   = []prereq{ether(etherIPv4), proto(protoICMP)}
	needICMPv6 = []prereq{ether(etherIPv6), proto(protoICMPv6)}
	needND     = []prereq{ether(etherIPv6), proto(protoICMPv6), icmp6(135, 136)}
	needNS     = []prereq{ether(etherIPv6), proto(protoICMPv6), icmp6(135)}
	needNA     = []prereq{ether(etherIPv6), proto(protoICMPv6), icmp6(136)}
	needVLAN   = []prereq{{field: FieldVLANVID, bits: vlanPresent}}
	needInPort = []prereq{{field: FieldInPort}}
)

// fields describes every match field. It is the only source of a field's width, of whether it
// may be masked or set, and of its prerequisites.
var fields = [numFields]fieldInfo{
	FieldInPort:        {"in_port", 0, 0, 4, 32, noMask, false, asPort, nil},
	FieldInPhyPort:     {"in_phy_port", 1, 0, 4, 32, noMask, false, asPort, needInPort},
	FieldMetadata:      {"metadata", 2, 0, 8, 64, mask, false, asHex, nil},
	FieldEthDst:        {"eth_dst", 3, 0, 6, 48, mask, true, asMAC, nil},
	FieldEthSrc:        {"eth_src", 4, 0, 6, 48, mask, true, asMAC, nil},
	FieldEthType:       {"eth_type", 5, 0, 2, 16, noMask, true, asHex, nil},
	FieldVLANVID:       {"vlan_vid", 6, 0, 2, 13, mask, true, asVLAN, nil},
	FieldVLANPCP:       {"vlan_pcp", 7, 0, 1, 3, noMask, true, asDecimal, needVLAN},
	FieldIPDSCP:        {"ip_dscp", 8, 0, 1, 6, noMask, true, asDecimal, needIP},
	FieldIPECN:         {"ip_ecn", 9, 0, 1, 2, noMask, true, asDecimal, needIP},
	FieldIPProto:       {"ip_proto", 10, 0, 1, 8, noMask, true, asDecimal, needIP},
	FieldIPv4Src:       {"ip_src", 11, 0, 4, 32, mask, true, asIPv4, needIPv4},
	FieldIPv4Dst:       {"ip_dst", 12, 0, 4, 32, mask, true, asIPv4, needIPv4},
	FieldTCPSrc:        {"tcp_src", 13, 0, 2, 16, maskExtended, true, asDecimal, needTCP},
	FieldTCPDst:        {"tcp_dst", 14, 0, 2, 16, maskExtended, true, asDecimal, needTCP},
	FieldUDPSrc:        {"udp_src", 15, 0, 2, 16, maskExtended, true, asDecimal, needUDP},
	FieldUDPDst:        {"udp_dst", 16, 0, 2, 16, maskExtended, true, asDecimal, needUDP},
	FieldSCTPSrc:       {"sctp_src", 17, 0, 2, 16, maskExtended, true, asDecimal, needSCTP},
	FieldSCTPDst:       {"sctp_dst", 18, 0, 2, 16, maskExtended, true, asDecimal, needSCTP},
	FieldICMPv4Type:    {"icmp_type", 19, 0, 1, 8, noMask, true, asDecimal, needICMP},
	FieldICMPv4Code:    {"icmp_code", 20, 0, 1, 8, noMask, true, asDecimal, needICMP},
	FieldARPOp:         {"arp_op", 21, 0, 2, 16, noMask, true, asDecimal, needARP},
	FieldARPSPA:        {"arp_spa", 22, 0, 4, 32, mask, true, asIPv4, needARP},
	FieldARPTPA:        {"arp_tpa", 23, 0, 4, 32, mask, true, asIPv4, needARP},
	FieldARPSHA:        {"arp_sha", 24, 0, 6, 48, mask, true, asMAC, needARP},
	FieldARPTHA:        {"arp_tha", 25, 0, 6, 48, mask, true, asMAC, needARP},
	FieldIPv6Src:       {"ipv6_src", 26, 0, 16, 128, mask, true, asIPv6, needIPv6},
	FieldIPv6Dst:       {"ipv6_dst", 27, 0, 16, 128, mask, true, asIPv6, needIPv6},
	FieldIPv6FlowLabel: {"ipv6_label", 28, 0, 4, 20, mask, true, asHex, needIPv6},
	FieldICMPv6Type:    {"icmpv6_type", 29, 0, 1, 8, noMask, true, asDecimal, needICMPv6},
	FieldICMPv6Code:    {"icmpv6_code", 30, 0, 1, 8, noMask, true, asDecimal, needICMPv6},
	FieldNDTarget:      {"nd_target", 31, 0, 16, 128, maskExtended, true, asIPv6, needND},
	FieldNDSLL:         {"nd_sll", 32, 0, 6, 48, maskExtended, true, asMAC, needNS},
	FieldNDTLL:         {"nd_tll", 33, 0, 6, 48, maskExtended, true, asMAC, needNA},
	FieldMPLSLabel:     {"mpls_label", 34, 0, 4, 20, noMask, true, asDecimal, needMPLS},
	FieldMPLSTC:        {"mpls_tc", 35, 0, 1, 3, noMask, true, asDecimal, needMPLS},
	FieldMPLSBOS:       {"mpls_bos", 36, 0, 1, 1, noMask, true, asDecimal, needMPLS},
	FieldPBBISID:       {"pbb_isid", 37, 0, 3, 24, mask, true, asHex, needPBB},
	FieldTunnelID:      {"tunnel_id", 38, 0, 8, 64, mask, true, asHex, nil},
	FieldIPv6ExtHdr:    {"ipv6_exthdr", 39, 0, 2, 9, mask, true, asHex, needIPv6},
	FieldTCPFlags:      {"tcp_flags", 42, ExperimenterONF, 2, 12, maskExtended, false, asTCPFlags, needTCP},
}

const (
	classBasic        = 0x8000
	classExperimenter = 0xffff
)

// lookupField returns the field of an OXM header. exp is the experimenter for class 0xffff.
func lookupField(class uint16, num uint8, exp uint32) (Field, bool) {
	switch {
	case class == classBasic && num < uint8(FieldTCPFlags):
		return Field(num), true
	case class == classExperimenter && exp == ExperimenterONF && num == fields[FieldTCPFlags].num:
		return FieldTCPFlags, true
	}
	return FieldInvalid, false
}

// Valid reports whether f is a field of the table.
func (f Field) Valid() bool { return f < numFields }

// Name returns the field's name as ovs-ofctl accepts it, for instance "eth_dst".
func (f Field) Name() string {
	if !f.Valid() {
		return fmt.Sprintf("field(%d)", uint8(f))
	}
	return fields[f].name
}

// String returns Name.
func (f Field) String() string { return f.Name() }

// Bits returns the number of bits of the field.
func (f Field) Bits() int { return int(fields[f].bits) }

// Bytes returns the size of the field's value on the wire.
func (f Field) Bytes() int { return int(fields[f].size) }

// Maskable reports whether a match may mask the field. Some fields (transport ports, neighbour
// discovery, TCP flags) can be masked on Open vSwitch only; StandardMask distinguishes them.
func (f Field) Maskable() bool { return f.Valid() && fields[f].mask != noMask }

// StandardMask reports whether OpenFlow 1.3 itself allows a mask for the field.
func (f Field) StandardMask() bool { return f.Valid() && fields[f].mask == mask }

// Settable reports whether a set-field action may write the field.
func (f Field) Settable() bool { return f.Valid() && fields[f].set }

// ParseField returns the field with the name.
func ParseField(name string) (Field, error) {
	for f := range fields {
		if fields[f].name == name {
			return Field(f), nil
		}
	}
	return FieldInvalid, fmt.Errorf("openflow: no match field is called %q", name)
}
