package hostile

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// FrameKind is one kind of harmful frames that an end host sends.
type FrameKind struct {
	Name string
	Does string // continues "a host that"
	// Append appends the n-th frame to b. Self is the host, victim another one.
	Append func(b []byte, n uint64, self, victim Host) []byte
}

// FrameKinds returns all kinds of harmful frames.
func FrameKinds() []FrameKind {
	return []FrameKind{
		{"arp-claims", "claims the addresses of other hosts", arpClaim},
		{"mac-claims", "sends from other hosts' link addresses", macClaim},
		{"arp-questions", "asks for addresses that nobody has", arpQuestion},
		{"broadcasts", "sends broadcasts", broadcast},
		{"new-hosts", "sends each frame from another address", newHost},
		{"dhcp-clients", "requests leases for invented clients", dhcpDiscover},
		{"dhcp-server", "offers leases as if it were the DHCP server", dhcpOffer},
		{"joins", "opens subflows of invented connections", join},
		{"probes", "sends frames like the controller's probes of links", linkProbe},
	}
}

var noMAC openflow.MAC

// arpClaim appends an unsolicited ARP reply, or an ARP announcement.
func arpClaim(b []byte, n uint64, self, victim Host) []byte {
	if n%2 == 0 {
		return packet.AppendARPRequest(b, self.MAC, victim.Addr, victim.Addr, 0)
	}
	return packet.AppendARP(b, packet.Frame{Dst: packet.Broadcast, Src: self.MAC},
		packet.ARPMessage{Op: packet.ARPReply, SenderMAC: self.MAC, Sender: victim.Addr, TargetMAC: noMAC, Target: self.Addr})
}

func macClaim(b []byte, n uint64, _, victim Host) []byte {
	return packet.AppendARPRequest(b, victim.MAC, victim.Addr, host(n).Addr, 0)
}

func arpQuestion(b []byte, n uint64, self, _ Host) []byte {
	return packet.AppendARPRequest(b, self.MAC, self.Addr, host(n).Addr, 0)
}

// discardPort is the port of a service that nobody offers (RFC 863).
const discardPort = 9

var toAll = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func broadcast(b []byte, _ uint64, self, _ Host) []byte {
	return packet.AppendUDP(b, packet.Frame{Dst: packet.Broadcast, Src: self.MAC}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(self.Addr, discardPort), Dst: netip.AddrPortFrom(toAll, discardPort), Payload: make([]byte, 1000),
	})
}

func newHost(b []byte, n uint64, _, victim Host) []byte {
	h := host(n)
	return packet.AppendTCP(b, packet.Frame{Dst: victim.MAC, Src: h.MAC}, packet.TCPSegment{
		Src: netip.AddrPortFrom(h.Addr, discardPort), Dst: netip.AddrPortFrom(victim.Addr, discardPort), Flags: packet.SYN, Window: 1000,
	})
}

func dhcpDiscover(b []byte, n uint64, _, _ Host) []byte {
	h := host(n)
	m, err := dhcpv4.NewDiscovery(h.MAC[:])
	if err != nil {
		return b // The system has no random numbers.
	}
	return packet.AppendUDP(b, packet.Frame{Dst: packet.Broadcast, Src: h.MAC}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(netip.IPv4Unspecified(), dhcpv4.ClientPort), Dst: netip.AddrPortFrom(toAll, dhcpv4.ServerPort), Payload: m.ToBytes(),
	})
}

// dhcpOffer appends a frame that offers the victim a lease with this host as its gateway.
func dhcpOffer(b []byte, _ uint64, self, victim Host) []byte {
	m, err := dhcpv4.New(
		dhcpv4.WithHwAddr(victim.MAC[:]), dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer), dhcpv4.WithYourIP(host(1).Addr.AsSlice()),
		dhcpv4.WithServerIP(self.Addr.AsSlice()), dhcpv4.WithRouter(self.Addr.AsSlice()), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(self.Addr.AsSlice())))
	if err != nil {
		return b // The system has no random numbers.
	}
	m.OpCode = dhcpv4.OpcodeBootReply
	return packet.AppendUDP(b, packet.Frame{Dst: packet.Broadcast, Src: self.MAC}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(self.Addr, dhcpv4.ServerPort), Dst: netip.AddrPortFrom(toAll, dhcpv4.ClientPort), Payload: m.ToBytes(),
	})
}

// joinMark is the DSCP of SYNs that open further subflows. The configuration can set another one
// (qos.subflows.dscp).
const joinMark = 11

// join appends a SYN that joins a connection (RFC 8684, section 3.2). Every fourth has a source
// address that nobody has.
func join(b []byte, n uint64, self, victim Host) []byte {
	from := self.Addr
	if n%4 == 3 {
		from = host(n).Addr
	}
	const kind, length, subtype = 30, 12, 1 << 4
	options := []byte{kind, length, subtype, 1}
	options = binary.BigEndian.AppendUint32(options, rand.Uint32()) // the token
	options = binary.BigEndian.AppendUint32(options, rand.Uint32())
	const header, size, sum = 14, 20, 10 // sizes of the headers of Ethernet and IPv4, and the offset of IPv4's checksum
	at := len(b) + header
	b = packet.AppendTCP(b, packet.Frame{Dst: victim.MAC, Src: self.MAC}, packet.TCPSegment{
		Src: netip.AddrPortFrom(from, uint16(1024+rand.Uint32N(1<<16-1024))), Dst: netip.AddrPortFrom(victim.Addr, 80), Flags: packet.SYN, Window: 1000, Options: options,
	})
	b[at+1] = joinMark << 2
	binary.BigEndian.PutUint16(b[at+sum:], 0)
	binary.BigEndian.PutUint16(b[at+sum:], packet.Checksum(packet.Sum(b[at:at+size], 0)))
	return b
}

// linkProbe appends an LLDP frame like the controller's probes of links (see package discovery),
// with a random hash.
func linkProbe(b []byte, n uint64, self, _ Host) []byte {
	const body, hash = 8 + 8 + 4 + 8 + 8, 16
	b = append(b, discovery.Multicast[:]...)
	b = append(b, self.MAC[:]...)
	b = binary.BigEndian.AppendUint16(b, packet.TypeLLDP)
	b = append(b, 1<<1, 2, 7, byte(n%8)) // chassis
	b = append(b, 2<<1, 2, 7, byte(n%8)) // port
	b = append(b, 3<<1, 2, 0, 120)       // lifetime
	b = append(b, 127<<1, 4+body+hash, 2, 0x51, 0x1c, 1)
	for range body + hash {
		b = append(b, byte(rand.Uint32()))
	}
	return append(b, 0, 0) // the end
}
