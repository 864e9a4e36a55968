package dhcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// UDP ports of DHCP.
const (
	ServerPort = 67
	ClientPort = 68
)

// Offsets of the header fields into which options may overflow (RFC 2132, section 9.3), and the
// bits of the overload option.
const (
	snameAt, fileAt, cookieAt = 44, 108, 236
	overloadFile              = 1
	overloadSname             = 2
)

// maxEcho bounds the options of a request that are copied into the reply.
const maxEcho = 255

// ErrNotRequest means that a frame is not a whole DHCP message to a server.
var ErrNotRequest = errors.New("dhcp: not a whole message to a DHCP server")

// Parse parses the DHCP message to a server in a frame whose headers were parsed into h.
func Parse(frame []byte, h *packet.Headers) (*dhcpv4.DHCPv4, error) {
	if !h.Has(packet.IPv4|packet.UDP) || h.DstPort != ServerPort || h.IsFragment() {
		return nil, ErrNotRequest
	}
	if h.End > len(frame) || h.Payload > h.End || h.L4+8 > len(frame) {
		return nil, fmt.Errorf("%w: the frame was cut short", ErrNotRequest)
	}
	// The datagram may be shorter than the packet, but not longer.
	end := h.L4 + int(frame[h.L4+4])<<8 + int(frame[h.L4+5])
	if end < h.Payload || end > h.End {
		return nil, fmt.Errorf("%w: UDP length %d in a packet with %d bytes for it", ErrNotRequest, end-h.L4, h.End-h.L4)
	}
	return Decode(frame[h.Payload:end])
}

// Decode parses a DHCP message, including options that overflow into the fields for names, and
// returns an error for a message that no client sends.
func Decode(payload []byte) (*dhcpv4.DHCPv4, error) {
	m, err := dhcpv4.FromBytes(payload)
	if err != nil {
		return nil, fmt.Errorf("dhcp: decode %d bytes: %w", len(payload), err)
	}
	if err := overload(m, payload); err != nil {
		return nil, err
	}
	return m, check(m)
}

// overload adds the options in the fields of the server's name and the boot file.
func overload(m *dhcpv4.DHCPv4, payload []byte) error {
	v := m.Options.Get(dhcpv4.OptionOptionOverload)
	if len(v) != 1 {
		return nil
	}
	if v[0]&overloadFile != 0 {
		m.BootFileName = ""
		if err := m.Options.FromBytes(payload[fileAt:cookieAt]); err != nil {
			return fmt.Errorf("dhcp: options in the field file: %w", err)
		}
	}
	if v[0]&overloadSname != 0 {
		m.ServerHostName = ""
		if err := m.Options.FromBytes(payload[snameAt:fileAt]); err != nil {
			return fmt.Errorf("dhcp: options in the field sname: %w", err)
		}
	}
	return nil
}

// check returns an error if the message is not a request that this server can answer.
func check(m *dhcpv4.DHCPv4) error {
	switch {
	case m.OpCode != dhcpv4.OpcodeBootRequest:
		return fmt.Errorf("dhcp: operation %v, not a request", m.OpCode)
	case m.HWType != iana.HWTypeEthernet || len(m.ClientHWAddr) != 6:
		return fmt.Errorf("dhcp: hardware type %v with addresses of %d bytes, not Ethernet", m.HWType, len(m.ClientHWAddr))
	case hardware(m).IsZero() || hardware(m).IsMulticast():
		return fmt.Errorf("dhcp: client hardware address %v is no host's", m.ClientHWAddr)
	}
	for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionClientIdentifier, dhcpv4.OptionRelayAgentInformation} {
		if n := len(m.Options.Get(code)); n > maxEcho {
			return fmt.Errorf("dhcp: option %v of %d bytes, more than %d", code, n, maxEcho)
		}
	}
	for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionRequestedIPAddress, dhcpv4.OptionServerIdentifier} {
		if v, ok := m.Options[code.Code()]; ok && len(v) != 4 {
			return fmt.Errorf("dhcp: option %v of %d bytes, not 4", code, len(v))
		}
	}
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDecline,
		dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeInform:
		return nil
	}
	return fmt.Errorf("dhcp: message type %v is none that clients send", m.MessageType())
}

// hardware returns the client's hardware address, or zero if it is not an Ethernet address.
func hardware(m *dhcpv4.DHCPv4) openflow.MAC {
	if len(m.ClientHWAddr) != 6 {
		return openflow.MAC{}
	}
	return openflow.MAC(m.ClientHWAddr)
}

// addr returns the address in a field of the header; it is invalid if the field is zero.
func addr(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip)
	if a = a.Unmap(); !ok || a.IsUnspecified() || !a.Is4() {
		return netip.Addr{}
	}
	return a
}

// addrOption returns the address in an option; it is invalid if the option is absent.
func addrOption(m *dhcpv4.DHCPv4, code dhcpv4.OptionCode) netip.Addr {
	return addr(m.Options.Get(code))
}

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
