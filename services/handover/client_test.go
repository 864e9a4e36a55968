package handover

import (
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// in passes a frame that came in by a port to the service.
func (r *rig) in(at network.PortRef, data []byte) network.Verdict {
	r.t.Helper()
	var h packet.Headers
	if err := h.Parse(data); err != nil {
		r.t.Fatal(err)
	}
	return r.packets.packet(at, &h, data, time.Now())
}

// send sends a DHCP message of a client.
func (r *rig) send(at network.PortRef, src openflow.MAC, m *dhcpv4.DHCPv4) network.Verdict {
	r.t.Helper()
	to := netip.MustParseAddr("255.255.255.255")
	return r.in(at, packet.AppendUDP(nil, packet.Frame{Dst: packet.Broadcast, Src: src}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(netip.IPv4Unspecified(), 68), Dst: netip.AddrPortFrom(to, 67), Payload: m.ToBytes(),
	}))
}

// answer waits for the DHCP answer of a type at a port, and returns its address. The address is
// not valid if no answer comes in time.
func (r *rig) answer(at network.PortRef, want dhcpv4.MessageType, within time.Duration) netip.Addr {
	r.t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		select {
		case f := <-r.w.sent:
			var h packet.Headers
			if f.at != at || h.Parse(f.data) != nil || h.SrcPort != 67 {
				continue
			}
			m, err := dhcpv4.FromBytes(f.data[h.Payload:])
			if err != nil {
				r.t.Fatal(err)
			}
			if m.MessageType() != want {
				r.t.Fatalf("answered with %v, want %v", m.MessageType(), want)
			}
			ip, _ := netip.AddrFromSlice(m.YourIPAddr.To4())
			return ip
		case <-deadline.C:
			return netip.Addr{}
		}
	}
}

// answerTime bounds the wait for an answer that must come.
const answerTime = 60 * time.Second

func discover(chaddr openflow.MAC) *dhcpv4.DHCPv4 {
	m, err := dhcpv4.NewDiscovery(chaddr[:])
	if err != nil {
		panic(err)
	}
	return m
}

// request returns a REQUEST by a client that remembers its address.
func request(chaddr openflow.MAC, ip netip.Addr) *dhcpv4.DHCPv4 {
	m, err := dhcpv4.New(dhcpv4.WithHwAddr(chaddr[:]), dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip.AsSlice())))
	if err != nil {
		panic(err)
	}
	return m
}

// attach takes a client through the whole exchange.
func (r *rig) attach(at network.PortRef, src openflow.MAC) netip.Addr {
	r.t.Helper()
	if v := r.send(at, src, discover(src)); v != network.Stop {
		r.t.Fatalf("DISCOVER at %v is left to others", at)
	}
	ip := r.answer(at, dhcpv4.MessageTypeOffer, answerTime)
	if !ip.IsValid() {
		r.t.Fatalf("no offer at %v", at)
	}
	if got := r.move(at, src, ip); got != ip {
		r.t.Fatalf("granted %v after an offer of %v", got, ip)
	}
	return ip
}

// move sends a REQUEST for an address that the client has, and returns what is
// granted.
func (r *rig) move(at network.PortRef, src openflow.MAC, ip netip.Addr) netip.Addr {
	r.t.Helper()
	r.send(at, src, request(src, ip))
	return r.answer(at, dhcpv4.MessageTypeAck, answerTime)
}

// idle waits until no job is queued or running.
func (r *rig) idle() {
	r.t.Helper()
	r.eventually("the work queue to be empty", func() bool {
		_, working := r.queue.Load()
		return working == 0
	})
}

// down follows a packet from beyond the border port to a device.
func (r *rig) down(ip netip.Addr, home openflow.MAC) []arrival {
	r.t.Helper()
	return r.downAt(uplink, ip, home)
}

// downAt follows a packet that has come as far as a port.
func (r *rig) downAt(at network.PortRef, ip netip.Addr, home openflow.MAC) []arrival {
	r.t.Helper()
	return r.w.deliver(r.t, at, fake.NewPacket(openflow.EthType(packet.TypeIPv4), openflow.EthSrc(routerMAC), openflow.EthDst(home),
		openflow.IPSrc(server), openflow.IPDst(ip), openflow.IPProto(packet.ProtoTCP)))
}

// up follows a packet from a device to the border ports.
func (r *rig) up(at network.PortRef, src openflow.MAC, ip netip.Addr) []arrival {
	r.t.Helper()
	return r.w.deliver(r.t, at, fake.NewPacket(openflow.EthType(packet.TypeIPv4), openflow.EthSrc(src), openflow.EthDst(routerMAC),
		openflow.IPSrc(ip), openflow.IPDst(server), openflow.IPProto(packet.ProtoTCP)))
}
