package dhcp

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// discover answers with an offer.
func (c *call) discover() Decision {
	if !c.authorised() {
		return c.decision
	}
	ip, err := c.server.reg.Lessor.Offer(c.decision.Device.ID, addrOption(c.Message, dhcpv4.OptionRequestedIPAddress), c.At)
	if err != nil {
		return c.failed(err)
	}
	c.decision.Verdict = Offered
	c.answer(dhcpv4.MessageTypeOffer, ip)
	return c.decision
}

// request grants the address or refuses it. Where the client names the address shows whether it
// has just been offered it (selecting), remembers it (init-reboot) or uses it (renewing,
// rebinding) (RFC 2131, section 4.3.2). The decision is the same for all of these.
func (c *call) request() Decision {
	if c.otherServer(c.pool) {
		return c.drop(Ignored, "the client has chosen server %v", addrOption(c.Message, dhcpv4.OptionServerIdentifier))
	}
	ip := addr(c.Message.ClientIPAddr)
	if !ip.IsValid() {
		ip = addrOption(c.Message, dhcpv4.OptionRequestedIPAddress)
	}
	if !ip.IsValid() {
		return c.drop(Ignored, "the request names no address")
	}
	if !c.authorised() {
		return c.decision
	}
	v, err := c.server.reg.Lessor.Reserve(c.decision.Device.ID, registry.Claim{
		IP: ip, ClientID: c.Message.Options.Get(dhcpv4.OptionClientIdentifier), MAC: c.chaddr, Signed: c.stamp.Time,
		Attachment: &registry.Attachment{At: c.At, MAC: c.Src, Since: c.Time},
	})
	switch {
	case errors.Is(err, registry.ErrNotYours), errors.Is(err, registry.ErrTaken), errors.Is(err, registry.ErrQuarantined):
		return c.refuse(err)
	case err != nil:
		return c.failed(err)
	}
	if c.lease != nil {
		c.decision.Previous = c.lease.Attachment
	}
	c.decision.Attach = !c.atHome() || c.lease.IP != v.Lease.IP
	c.decision.Lease, c.decision.Verdict, c.decision.reserved = v.Lease, Granted, v
	c.answer(dhcpv4.MessageTypeAck, v.Lease.IP)
	return c.decision
}

// refuse answers with DHCPNAK: the client has to start over.
func (c *call) refuse(err error) Decision {
	c.decision.Reply = c.reply(dhcpv4.MessageTypeNak)
	c.decision.Reply.Options[dhcpv4.OptionMessage.Code()] = []byte("address not available to this client")
	c.setDestination(netip.Addr{})
	return c.drop(Refused, "%v", err)
}

// decline puts an address that the client found in use into quarantine.
func (c *call) decline(ctx context.Context) Decision {
	ip := addrOption(c.Message, dhcpv4.OptionRequestedIPAddress)
	if !c.mayEnd(ip) {
		return c.decision
	}
	if err := c.server.reg.Lessor.Decline(ctx, c.decision.Device.ID, ip); err != nil {
		return c.notEnded(err)
	}
	return c.ended(Declined)
}

// release ends a lease.
func (c *call) release(ctx context.Context) Decision {
	if !c.mayEnd(addr(c.Message.ClientIPAddr)) {
		return c.decision
	}
	if err := c.server.reg.Lessor.Release(ctx, c.decision.Device.ID); err != nil {
		return c.notEnded(err)
	}
	return c.ended(Released)
}

// mayEnd reports whether the device may release or decline the address by this message. A message
// from a place that the device has left is ignored, because it is about the device's previous
// interface.
func (c *call) mayEnd(ip netip.Addr) bool {
	switch {
	case c.otherServer(c.pool):
		c.drop(Ignored, "it is meant for server %v", addrOption(c.Message, dhcpv4.OptionServerIdentifier))
	case !ip.IsValid():
		c.drop(Ignored, "it names no address")
	case c.lease != nil && c.lease.IP != ip:
		c.drop(Ignored, "device %q has %v, not %v", c.decision.Device.ID, c.lease.IP, ip)
	case c.lease != nil && c.lease.Attachment != nil && !c.atHome():
		c.drop(Ignored, "device %q is at %v by now", c.decision.Device.ID, c.lease.Attachment.At)
	default:
		return c.authorised()
	}
	return false
}

// notEnded ends the handling when a lease could not be ended.
func (c *call) notEnded(err error) Decision {
	for _, known := range []error{registry.ErrNoLease, registry.ErrNotYours, registry.ErrFull} {
		if errors.Is(err, known) {
			return c.drop(Ignored, "%v", err)
		}
	}
	return c.failed(err)
}

// ended ends the handling of a message that has ended a lease; there is no answer.
func (c *call) ended(v Verdict) Decision {
	c.decision.Verdict = v
	if c.lease != nil {
		c.decision.Lease, c.decision.Previous, c.decision.Detach = *c.lease, c.lease.Attachment, true
	}
	return c.decision
}

// inform sends the parameters to a client that has its address already, by a lease or by other
// means (RFC 2131, section 4.3.5). The parameters are those of the pool's network.
func (c *call) inform() Decision {
	ip := addr(c.Message.ClientIPAddr)
	if !c.pool.Prefix.Contains(ip) {
		return c.drop(Ignored, "it asks for parameters with address %v, which is not in %v of pool %q", ip, c.pool.Prefix, c.pool.Name)
	}
	c.decision.Verdict = Informed
	if c.lease != nil && c.lease.IP == ip {
		c.decision.Lease = *c.lease
	}
	c.answer(dhcpv4.MessageTypeAck, netip.Addr{})
	return c.decision
}

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

// answer sets the reply to an offer or acknowledgement of ip, with all parameters. If ip is invalid,
// the reply has no address and no lease time: it is for a client that only asks for the parameters.
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

// leaseTimes adds the lease time d, the time after which the client renews the lease (half of d), and
// the time after which it asks any server (seven eighths of d; RFC 2131, section 4.4.5).
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
