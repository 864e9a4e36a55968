package lease

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// UDP ports of DHCP.
const (
	ServerPort = 67
	ClientPort = 68
)

// minMessage is the shortest message in bytes that relays and servers of BOOTP accept.
const minMessage = 300

var (
	be               = binary.BigEndian
	broadcast        = packet.Broadcast
	limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

// addresses holds the Ethernet and IP addresses of a frame.
type addresses struct {
	dst, src openflow.MAC
	to, from netip.Addr
}

// frame wraps a message into UDP, IPv4 and Ethernet.
func frame(e addresses, m *dhcpv4.DHCPv4) []byte {
	body := m.ToBytes()
	for len(body) < minMessage {
		body = append(body, 0)
	}
	return packet.AppendUDP(nil, packet.Frame{Dst: e.dst, Src: e.src}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(e.from, ClientPort), Dst: netip.AddrPortFrom(e.to, ServerPort), Payload: body,
	})
}

// Reply is a server's message as it arrived.
type Reply struct {
	Message *dhcpv4.DHCPv4
	From    openflow.MAC
}

// errNotDHCP is returned for a frame that is no DHCP message to a client.
var errNotDHCP = errors.New("not a DHCP message to a client")

// parse parses the message in a frame. It verifies checksums unless the frame came without them.
func parse(data []byte, unsummed bool) (Reply, error) {
	h, err := packet.Parse(data)
	if err != nil {
		return Reply{}, fmt.Errorf("%w: %w", errNotDHCP, err)
	}
	if !h.Has(packet.IPv4|packet.UDP) || h.DstPort != ClientPort || h.End > len(data) {
		return Reply{}, errNotDHCP
	}
	udp := data[h.Payload-8 : h.End]
	length := int(be.Uint16(udp[4:]))
	if length < 8 || length > len(udp) {
		return Reply{}, fmt.Errorf("%w: a length of %d", errNotDHCP, length)
	}
	udp = udp[:length]
	if packet.Checksum(packet.Sum(data[h.L3:h.Payload-8], 0)) != 0 {
		return Reply{}, fmt.Errorf("%w: wrong checksum of the IP header", errNotDHCP)
	}
	if stored := be.Uint16(udp[6:]); stored != 0 && !unsummed {
		pseudo := packet.Sum(data[h.L3+12:h.L3+20], uint32(packet.ProtoUDP)+uint32(length))
		if packet.Checksum(packet.Sum(udp, pseudo)) != 0 {
			return Reply{}, fmt.Errorf("%w: wrong checksum", errNotDHCP)
		}
	}
	m, err := dhcpv4.FromBytes(udp[8:])
	if err != nil {
		return Reply{}, fmt.Errorf("%w: %w", errNotDHCP, err)
	}
	if m.OpCode != dhcpv4.OpcodeBootReply {
		return Reply{}, fmt.Errorf("%w: a request", errNotDHCP)
	}
	return Reply{Message: m, From: h.EthSrc}, nil
}
