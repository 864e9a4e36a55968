package dhcp

import (
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// limitedBroadcast is the IPv4 address of all hosts of a link.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Frame returns the reply as an Ethernet frame to be sent out of the port where the request came
// in. The decision must have a reply.
func (d *Decision) Frame(from openflow.MAC) []byte {
	return Frame(d.Reply, from, d.From, d.To, d.ToIP)
}

// Frame wraps a server's message into a UDP datagram, an IPv4 packet and an Ethernet frame. A
// message for a relay agent goes to the relay's port.
func Frame(reply *dhcpv4.DHCPv4, from openflow.MAC, fromIP netip.Addr, to openflow.MAC, toIP netip.Addr) []byte {
	payload := reply.ToBytes()
	port := uint16(ClientPort)
	if relay := addr(reply.GatewayIPAddr); relay.IsValid() && relay == toIP {
		port = ServerPort
	}
	return packet.AppendUDP(make([]byte, 0, 14+20+8+len(payload)), packet.Frame{Dst: to, Src: from}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(fromIP, ServerPort), Dst: netip.AddrPortFrom(toIP, port), Payload: payload,
	})
}
