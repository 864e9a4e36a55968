package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/services/handover/registry"
)

var unspecified = net.IP{0, 0, 0, 0}

// broadcastFlag is the bit by which a client asks for broadcast.
const broadcastFlag = 0x8000

// reply returns a reply with the fields and options that are copied from the request (RFC 2131,
// table 3; RFC 6842; RFC 3046).
func (c *call) reply(kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	m := c.Message
	r := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: m.HWType, ClientHWAddr: m.ClientHWAddr,
		TransactionID: m.TransactionID, Flags: m.Flags, GatewayIPAddr: m.GatewayIPAddr,
		ClientIPAddr: unspecified, YourIPAddr: unspecified, ServerIPAddr: unspecified,
		Options: make(dhcpv4.Options, 16),
	}
	r.Options[dhcpv4.OptionDHCPMessageType.Code()] = []byte{byte(kind)}
	r.Options[dhcpv4.OptionServerIdentifier.Code()] = c.decision.From.AsSlice()
	for _, code := range [...]dhcpv4.OptionCode{dhcpv4.OptionClientIdentifier, dhcpv4.OptionRelayAgentInformation} {
		if v, ok := m.Options[code.Code()]; ok {
			r.Options[code.Code()] = v
		}
	}
	return r
}

// answer makes an offer or acknowledgement of the address, with all parameters. Without an address
// it is an answer to a client that has its address but no lease of it.
func (c *call) answer(kind dhcpv4.MessageType, ip netip.Addr) {
	r := c.reply(kind)
	if kind == dhcpv4.MessageTypeAck {
		r.ClientIPAddr = c.Message.ClientIPAddr
	}
	parameters(r.Options, c.pool)
	if ip.IsValid() {
		r.YourIPAddr = ip.AsSlice()
		leaseTimes(r.Options, c.pool.LeaseTime)
	}
	c.decision.Reply = r
	c.setDestination(ip)
}

// parameters adds the parameters for hosts of the pool.
func parameters(o dhcpv4.Options, p registry.Pool) {
	o[dhcpv4.OptionSubnetMask.Code()] = net.CIDRMask(p.Prefix.Bits(), 32)
	o[dhcpv4.OptionRouter.Code()] = p.Gateway.AsSlice()
	if len(p.DNS) > 0 {
		v := make([]byte, 0, 4*len(p.DNS))
		for _, a := range p.DNS {
			v = append(v, a.AsSlice()...)
		}
		o[dhcpv4.OptionDomainNameServer.Code()] = v
	}
	if p.Domain != "" {
		o[dhcpv4.OptionDomainName.Code()] = []byte(p.Domain)
	}
	if p.MTU != 0 {
		o[dhcpv4.OptionInterfaceMTU.Code()] = binary.BigEndian.AppendUint16(nil, uint16(p.MTU))
	}
}

// leaseTimes adds how long the lease lasts and when to renew it: after half of it, and by any
// server after seven eighths (RFC 2131, section 4.4.5).
func leaseTimes(o dhcpv4.Options, d time.Duration) {
	set := func(code dhcpv4.OptionCode, t time.Duration) {
		o[code.Code()] = binary.BigEndian.AppendUint32(nil, uint32(t/time.Second))
	}
	set(dhcpv4.OptionIPAddressLeaseTime, d)
	set(dhcpv4.OptionRenewTimeValue, d/2)
	set(dhcpv4.OptionRebindingTimeValue, d/8*7)
}

// setDestination sets where the reply goes (RFC 2131, section 4.1). ip is the address that the
// client gets, if any. Frames to a single host go to the source of the request, the interface that
// the device uses now, which need not have the client's hardware address.
func (c *call) setDestination(ip netip.Addr) {
	relay, own := addr(c.Message.GatewayIPAddr), addr(c.Message.ClientIPAddr)
	refusal := c.decision.Reply.MessageType() == dhcpv4.MessageTypeNak
	c.decision.To = c.Src
	switch {
	case relay.IsValid():
		c.decision.ToIP = relay
		if refusal {
			c.decision.Reply.Flags |= broadcastFlag
		}
	case refusal:
		c.decision.To, c.decision.ToIP = packet.Broadcast, limitedBroadcast
	case own.IsValid():
		c.decision.ToIP = own
	case c.Message.Flags&broadcastFlag != 0 || !ip.IsValid():
		c.decision.To, c.decision.ToIP = packet.Broadcast, limitedBroadcast
	default:
		c.decision.ToIP = ip
	}
}
