package dhcp

import (
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

var limited = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Frame is the reply as an Ethernet frame to be sent out of the port where the
// request came in. The decision has to have one.
func (d *Decision) Frame(from openflow.MAC) []byte {
	return Frame(d.Reply, from, d.From, d.To, d.ToIP)
}

// Frame puts a server's message into a UDP datagram, an IPv4 packet and an
// Ethernet frame. A message that a relay is to pass on goes to the relay's port.
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
