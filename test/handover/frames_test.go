package handover

import (
	"encoding/binary"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/openflow"
)

// This file builds and parses frames without the code under test.

const (
	etherHeader = 14
	ipHeader    = 20
	udpHeader   = 8

	typeIPv4 = 0x0800
	typeARP  = 0x0806
	protoUDP = 17

	arpRequest = 1
	arpReply   = 2

	dhcpServerPort = 67
	dhcpClientPort = 68
)

var (
	broadcastMAC = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	broadcastIP  = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

func ether(dst, src openflow.MAC, kind uint16) []byte {
	b := append(append(make([]byte, 0, 1514), dst[:]...), src[:]...)
	return binary.BigEndian.AppendUint16(b, kind)
}

// udpFrame returns a UDP datagram, without a UDP checksum, which IPv4 allows.
func udpFrame(dst, src openflow.MAC, from, to netip.AddrPort, payload []byte) []byte {
	b := ether(dst, src, typeIPv4)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(ipHeader+udpHeader+len(payload)))
	b = append(b, 0, 0, 0, 0, 64, protoUDP, 0, 0)
	b = append(append(b, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	binary.BigEndian.PutUint16(b[etherHeader+10:], checksum(b[etherHeader:]))
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(udpHeader+len(payload)))
	b = append(b, 0, 0)
	return append(b, payload...)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func arpFrame(dst, src openflow.MAC, op uint16, sha openflow.MAC, spa netip.Addr, tha openflow.MAC, tpa netip.Addr) []byte {
	b := append(ether(dst, src, typeARP), 0, 1, 8, 0, 6, 4)
	b = binary.BigEndian.AppendUint16(b, op)
	b = append(append(b, sha[:]...), spa.AsSlice()...)
	return append(append(b, tha[:]...), tpa.AsSlice()...)
}

// arp is the payload of an ARP frame.
type arp struct {
	op       uint16
	sha, tha openflow.MAC
	spa, tpa netip.Addr
}

// frame is a parsed frame.
type frame struct {
	dst, src openflow.MAC
	arp      *arp
	// of UDP over IPv4:
	from, to netip.AddrPort
	payload  []byte
}

func mustMAC(text string) openflow.MAC {
	m, err := openflow.ParseMAC(text)
	if err != nil {
		panic(err)
	}
	return m
}

func addr4(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }

// parse parses a frame; ok is false for what is neither ARP nor UDP over IPv4.
func parse(b []byte) (f frame, ok bool) {
	if len(b) < etherHeader {
		return f, false
	}
	f.dst, f.src = openflow.MAC(b[:6]), openflow.MAC(b[6:12])
	rest := b[etherHeader:]
	switch binary.BigEndian.Uint16(b[12:]) {
	case typeARP:
		if len(rest) < 28 {
			return f, false
		}
		f.arp = &arp{
			op: binary.BigEndian.Uint16(rest[6:]), sha: openflow.MAC(rest[8:14]), tha: openflow.MAC(rest[18:24]),
			spa: addr4(rest[14:18]), tpa: addr4(rest[24:28]),
		}
		return f, true
	case typeIPv4:
		if len(rest) < ipHeader || rest[0] != 0x45 || rest[9] != protoUDP {
			return f, false
		}
		total := int(binary.BigEndian.Uint16(rest[2:]))
		if total < ipHeader+udpHeader || total > len(rest) {
			return f, false
		}
		udp := rest[ipHeader:total]
		f.from = netip.AddrPortFrom(addr4(rest[12:16]), binary.BigEndian.Uint16(udp))
		f.to = netip.AddrPortFrom(addr4(rest[16:20]), binary.BigEndian.Uint16(udp[2:]))
		f.payload = udp[udpHeader:]
		return f, true
	}
	return f, false
}

// dhcp parses a DHCP message.
func (f frame) dhcp() *dhcpv4.DHCPv4 {
	if f.to.Port() != dhcpClientPort && f.to.Port() != dhcpServerPort {
		return nil
	}
	m, err := dhcpv4.FromBytes(f.payload)
	if err != nil {
		return nil
	}
	return m
}
