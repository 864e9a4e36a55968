package ebpf

import (
	"encoding/binary"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// The model does in Go what the programs do: replace a MAC address wherever a frame carries it, in
// the Ethernet header, in ARP, and in the options of IPv6 neighbour discovery.

// Offsets of the rewritten fields, in an untagged frame.
const (
	offDst     = 0
	offSrc     = 6
	offType    = 12
	header     = 14
	arpSHA     = header + 8
	arpTHA     = header + 18
	arpEnd     = header + 28
	ip6Next    = header + 6
	icmp6      = header + 40
	icmp6Sum   = icmp6 + 2
	optSLLA    = 1
	optTLLA    = 2
	optionUnit = 8
)

var be = binary.BigEndian

// outbound rewrites a frame of the VNI for the interface, in place.
func outbound(b []byte, vni, nic openflow.MAC) {
	if len(b) < header {
		return
	}
	copy(b[offSrc:], nic[:])
	switch be.Uint16(b[offType:]) {
	case packet.TypeARP:
		if len(b) >= arpEnd {
			copy(b[arpSHA:], nic[:])
			replace(b[arpTHA:], vni, nic)
		}
	case packet.TypeIPv6:
		neighbourDiscovery(b, vni, nic)
	}
}

// inbound rewrites a frame that came in by the interface for the VNI, in place.
func inbound(b []byte, vni, nic openflow.MAC) {
	if len(b) < header {
		return
	}
	replace(b[offDst:], nic, vni)
	if be.Uint16(b[offType:]) == packet.TypeARP && len(b) >= arpEnd {
		replace(b[arpTHA:], nic, vni)
	}
}

func replace(b []byte, from, to openflow.MAC) bool {
	if openflow.MAC(b[:6]) != from {
		return false
	}
	copy(b, to[:])
	return true
}

// neighbourDiscovery replaces the link-layer addresses in options and corrects
// the checksum.
func neighbourDiscovery(b []byte, from, to openflow.MAC) {
	if len(b) <= icmp6 || b[ip6Next] != packet.ProtoICMPv6 {
		return
	}
	var fixed int
	switch b[icmp6] {
	case packet.RouterSolicitation:
		fixed = 8
	case packet.RouterAdvertisement:
		fixed = 16
	case packet.NeighborSolicitation, packet.NeighborAdvertisement:
		fixed = 24
	default:
		return
	}
	for at := icmp6 + fixed; at+optionUnit <= len(b) && b[at+1] != 0; at += int(b[at+1]) * optionUnit {
		if (b[at] == optSLLA || b[at] == optTLLA) && b[at+1] == 1 && replace(b[at+2:], from, to) {
			be.PutUint16(b[icmp6Sum:], adjust(be.Uint16(b[icmp6Sum:]), from, to))
		}
	}
}

// adjust returns the Internet checksum after from was replaced by to (RFC 1624).
func adjust(sum uint16, from, to openflow.MAC) uint16 {
	s := uint32(^sum)
	for i := 0; i < len(from); i += 2 {
		s += uint32(^be.Uint16(from[i:])) + uint32(be.Uint16(to[i:]))
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return ^uint16(s)
}
