package fake

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// gatewayMAC is the MAC address of the gateway.
var gatewayMAC = openflow.MAC{2, 0, 0, 0, 0, 0xfe}

// Network gives one address to one device, at whatever place the device asks, and records these places. (The real
// server is services/handover/dhcp; this one has no state and no registry, for tests of the device alone.)
type Network struct {
	Lasts time.Duration

	mu      sync.Mutex
	address netip.Prefix
	log     []string
	refuse  bool
}

// NewNetwork returns a network with that address for the device.
func NewNetwork(address string) *Network {
	return &Network{address: netip.MustParsePrefix(address), Lasts: time.Hour}
}

// Gateway returns the first address of the network, and its MAC address.
func (n *Network) Gateway() (netip.Addr, openflow.MAC) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.address.Masked().Addr().Next(), gatewayMAC
}

// SetAddress makes the network give another address to the device.
func (n *Network) SetAddress(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.address = netip.MustParsePrefix(address)
}

// Refuse makes the network answer nobody, or everybody again.
func (n *Network) Refuse(refuse bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = refuse
}

// Log returns the requests since the last call: "DISCOVER at left".
func (n *Network) Log() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	log := n.log
	n.log = nil
	return log
}

// At returns the network's answers at one of its places.
func (n *Network) At(place string) Answer {
	return func(frame []byte, h *packet.Headers) []byte {
		if !h.Has(packet.UDP) || h.DstPort != 67 {
			return nil
		}
		m, err := dhcpv4.FromBytes(frame[h.Payload:h.End])
		if err != nil {
			return nil
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.log = append(n.log, fmt.Sprintf("%v at %s", m.MessageType(), place))
		if n.refuse {
			return nil
		}
		return n.reply(m, h.EthSrc)
	}
}

// reply returns an offer or an acknowledgement, or a refusal of another address.
func (n *Network) reply(m *dhcpv4.DHCPv4, to openflow.MAC) []byte {
	kind := dhcpv4.MessageTypeAck
	asked := m.RequestedIPAddress()
	if !m.ClientIPAddr.IsUnspecified() {
		asked = m.ClientIPAddr
	}
	switch {
	case m.MessageType() == dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
	case m.MessageType() != dhcpv4.MessageTypeRequest:
		return nil
	case !asked.Equal(n.address.Addr().AsSlice()):
		kind = dhcpv4.MessageTypeNak
	}
	gateway := net.IP(n.address.Masked().Addr().Next().AsSlice())
	r, err := dhcpv4.NewReplyFromRequest(m,
		dhcpv4.WithMessageType(kind), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(gateway)))
	if err != nil {
		return nil
	}
	if kind != dhcpv4.MessageTypeNak {
		r.YourIPAddr = n.address.Addr().AsSlice()
		r.UpdateOption(dhcpv4.OptIPAddressLeaseTime(n.Lasts))
		r.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(n.address.Bits(), 32)))
		r.UpdateOption(dhcpv4.OptRouter(gateway))
	}
	return packet.AppendUDP(nil, packet.Frame{Dst: to, Src: gatewayMAC}, packet.UDPDatagram{
		Src:     netip.AddrPortFrom(n.address.Masked().Addr().Next(), 67),
		Dst:     netip.AddrPortFrom(n.address.Addr(), 68),
		Payload: r.ToBytes(),
	})
}
