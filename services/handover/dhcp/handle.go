package dhcp

import (
	"context"
	"errors"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"

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
// from a place that the device has left concerns an old interface, and not the device.
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
