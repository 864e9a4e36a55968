package datapath_test

import (
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

var (
	own4, peer4 = netip.MustParseAddr("10.9.0.9"), netip.MustParseAddr("10.9.0.1")
	own6, peer6 = netip.MustParseAddr("fd09::9"), netip.MustParseAddr("fd09::1")
	allStations = packet.Broadcast
	group4      = openflow.MAC{0x01, 0x00, 0x5e, 0, 0, 0xfb}
	group6      = openflow.MAC{0x33, 0x33, 0, 0, 0, 0x01}
	nobody      = openflow.MAC{}
)

// assemble builds a frame with correct lengths and checksums.
func assemble(l ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func ether(src, dst openflow.MAC, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: src[:], DstMAC: dst[:], EthernetType: kind}
}

// udp4 returns a datagram over IPv4. Its number distinguishes it from all others.
func udp4(src, dst openflow.MAC, from, to netip.Addr, port uint16, number byte) []byte {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	udp := &layers.UDP{SrcPort: 4000, DstPort: layers.UDPPort(port)}
	_ = udp.SetNetworkLayerForChecksum(ip)
	return assemble(ether(src, dst, layers.EthernetTypeIPv4), ip, udp, gopacket.Payload(append([]byte("numbered datagram "), number, 0, 0, 0)))
}

func udp6(src, dst openflow.MAC, from, to netip.Addr, port uint16, number byte) []byte {
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	udp := &layers.UDP{SrcPort: 4000, DstPort: layers.UDPPort(port)}
	_ = udp.SetNetworkLayerForChecksum(ip)
	return assemble(ether(src, dst, layers.EthernetTypeIPv6), ip, udp, gopacket.Payload(append([]byte("numbered datagram "), number, 0, 0, 0)))
}

func arp(src, dst openflow.MAC, op uint16, sha openflow.MAC, spa netip.Addr, tha openflow.MAC, tpa netip.Addr) []byte {
	b := packet.AppendARP(nil, packet.Frame{Dst: dst, Src: src}, packet.ARPMessage{Op: op, SenderMAC: sha, Sender: spa, TargetMAC: tha, Target: tpa})
	return append(b, make([]byte, 60-len(b))...) // the padding of a real one
}

func icmp6(src, dst openflow.MAC, to string, kind uint8, body gopacket.SerializableLayer) []byte {
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: own6.AsSlice(), DstIP: net.ParseIP(to)}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
	_ = icmp.SetNetworkLayerForChecksum(ip)
	return assemble(ether(src, dst, layers.EthernetTypeIPv6), ip, icmp, body)
}

func option(kind layers.ICMPv6Opt, mac openflow.MAC) layers.ICMPv6Options {
	return layers.ICMPv6Options{{Type: kind, Data: mac[:]}}
}

func solicitNeighbour(src, option1 openflow.MAC) []byte {
	return icmp6(src, openflow.MAC{0x33, 0x33, 0xff, 0, 0, 1}, "ff02::1:ff00:1", 135,
		&layers.ICMPv6NeighborSolicitation{TargetAddress: peer6.AsSlice(), Options: option(layers.ICMPv6OptSourceAddress, option1)})
}

func advertiseNeighbour(src, option1 openflow.MAC) []byte {
	return icmp6(src, apMAC, peer6.String(), 136,
		&layers.ICMPv6NeighborAdvertisement{Flags: 0x60, TargetAddress: own6.AsSlice(), Options: option(layers.ICMPv6OptTargetAddress, option1)})
}

func solicitRouter(src, option1 openflow.MAC) []byte {
	return icmp6(src, openflow.MAC{0x33, 0x33, 0, 0, 0, 2}, "ff02::2", 133,
		&layers.ICMPv6RouterSolicitation{Options: option(layers.ICMPv6OptSourceAddress, option1)})
}

func eapol(src, dst openflow.MAC) []byte {
	return append(append(append(append([]byte{}, dst[:]...), src[:]...), 0x88, 0x8e), make([]byte, 46)...)
}

// behaviour is a frame, where it starts, and the expected result.
type behaviour struct {
	name     string
	in, want []byte // nil want: it is dropped
}

// outward returns frames of the VNI and what leaves by wifi.
func outward() []behaviour {
	return []behaviour{
		{"IPv4", udp4(vniMAC, apMAC, own4, peer4, 9, 1), udp4(wifiMAC, apMAC, own4, peer4, 9, 1)},
		{"IPv6", udp6(vniMAC, apMAC, own6, peer6, 9, 2), udp6(wifiMAC, apMAC, own6, peer6, 9, 2)},
		{"broadcast", udp4(vniMAC, allStations, own4, netip.MustParseAddr("255.255.255.255"), 9, 3), udp4(wifiMAC, allStations, own4, netip.MustParseAddr("255.255.255.255"), 9, 3)},
		{"multicast", udp4(vniMAC, group4, own4, netip.MustParseAddr("224.0.0.251"), 5353, 4), udp4(wifiMAC, group4, own4, netip.MustParseAddr("224.0.0.251"), 5353, 4)},
		{"ARP request", arp(vniMAC, allStations, 1, vniMAC, own4, nobody, peer4), arp(wifiMAC, allStations, 1, wifiMAC, own4, nobody, peer4)},
		{"ARP reply", arp(vniMAC, apMAC, 2, vniMAC, own4, apMAC, peer4), arp(wifiMAC, apMAC, 2, wifiMAC, own4, apMAC, peer4)},
		{"gratuitous ARP", arp(vniMAC, allStations, 2, vniMAC, own4, vniMAC, own4), arp(wifiMAC, allStations, 2, wifiMAC, own4, wifiMAC, own4)},
		{"neighbour solicitation", solicitNeighbour(vniMAC, vniMAC), solicitNeighbour(wifiMAC, wifiMAC)},
		{"neighbour advertisement", advertiseNeighbour(vniMAC, vniMAC), advertiseNeighbour(wifiMAC, wifiMAC)},
		{"router solicitation", solicitRouter(vniMAC, vniMAC), solicitRouter(wifiMAC, wifiMAC)},
		{"another source behind the VNI", udp4(peerMAC, apMAC, own4, peer4, 9, 5), udp4(wifiMAC, apMAC, own4, peer4, 9, 5)},
	}
}

// inward returns frames that come in by wifi and what the VNI gets.
func inward() []behaviour {
	return []behaviour{
		{"IPv4", udp4(apMAC, wifiMAC, peer4, own4, 9, 1), udp4(apMAC, vniMAC, peer4, own4, 9, 1)},
		{"IPv6", udp6(apMAC, wifiMAC, peer6, own6, 9, 2), udp6(apMAC, vniMAC, peer6, own6, 9, 2)},
		{"broadcast", udp4(apMAC, allStations, peer4, netip.MustParseAddr("255.255.255.255"), 9, 3), udp4(apMAC, allStations, peer4, netip.MustParseAddr("255.255.255.255"), 9, 3)},
		{"multicast", udp4(apMAC, group4, peer4, netip.MustParseAddr("224.0.0.251"), 5353, 4), udp4(apMAC, group4, peer4, netip.MustParseAddr("224.0.0.251"), 5353, 4)},
		{"multicast of IPv6", udp6(apMAC, group6, peer6, netip.MustParseAddr("ff02::1"), 9, 5), udp6(apMAC, group6, peer6, netip.MustParseAddr("ff02::1"), 9, 5)},
		{"ARP request", arp(apMAC, allStations, 1, apMAC, peer4, nobody, own4), arp(apMAC, allStations, 1, apMAC, peer4, nobody, own4)},
		{"ARP request to the device", arp(apMAC, wifiMAC, 1, apMAC, peer4, wifiMAC, own4), arp(apMAC, vniMAC, 1, apMAC, peer4, vniMAC, own4)},
		{"ARP reply", arp(apMAC, wifiMAC, 2, apMAC, peer4, wifiMAC, own4), arp(apMAC, vniMAC, 2, apMAC, peer4, vniMAC, own4)},
		{"ARP reply to all", arp(apMAC, allStations, 2, apMAC, peer4, wifiMAC, own4), arp(apMAC, allStations, 2, apMAC, peer4, vniMAC, own4)},
		{"for another station", udp4(apMAC, peerMAC, peer4, own4, 9, 6), nil},
		{"for the VNI's own address", udp4(apMAC, vniMAC, peer4, own4, 9, 7), nil},
		{"our own frame come back", udp4(wifiMAC, allStations, own4, netip.MustParseAddr("255.255.255.255"), 9, 8), nil},
		{"DHCP", udp4(apMAC, wifiMAC, peer4, own4, 68, 9), nil},
		{"802.1X", eapol(apMAC, wifiMAC), nil},
		{"802.1X to the group", eapol(apMAC, openflow.MAC{0x01, 0x80, 0xc2, 0, 0, 0x03}), nil},
	}
}
