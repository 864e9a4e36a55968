package dhcp

import (
	"context"
	"errors"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/handover/registry"
)

// discover answers with an offer.
func (c *call) discover() Decision {
	if !c.authorised() {
		return c.d
	}
	ip, err := c.reg.Lessor.Offer(c.d.Device.ID, addrOption(c.Message, dhcpv4.OptionRequestedIPAddress), c.At)
	if err != nil {
		return c.failed(err)
	}
	c.d.Verdict = Offered
	c.answer(dhcpv4.MessageTypeOffer, ip)
	return c.d
}

// request grants the address or refuses it. Whether the client has just been
// offered it (selecting), remembers it (init-reboot) or uses it (renewing,
// rebinding) shows in where it names it (RFC 2131, section 4.3.2); what is decided
// is the same.
func (c *call) request() Decision {
	if c.elsewhere(c.pool) {
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
		return c.d
	}
	v, err := c.reg.Lessor.Reserve(c.d.Device.ID, registry.Claim{
		IP: ip, ClientID: c.Message.Options.Get(dhcpv4.OptionClientIdentifier), MAC: c.chaddr, Signed: c.stamp.Time,
		Attachment: &registry.Attachment{At: c.At, MAC: c.Src, Since: c.Time},
	})
	switch {
	case errors.Is(err, registry.ErrNotYours), errors.Is(err, registry.ErrTaken), errors.Is(err, registry.ErrQuarantined):
		return c.refuse(err)
	case err != nil:
		return c.failed(err)
	}
	if c.held != nil {
		c.d.Previous = c.held.Attachment
	}
	c.d.Attach = !c.here() || c.held.IP != v.Lease.IP
	c.d.Lease, c.d.Verdict, c.d.reserved = v.Lease, Granted, v
	c.answer(dhcpv4.MessageTypeAck, v.Lease.IP)
	return c.d
}

// refuse answers with DHCPNAK: the client has to begin anew.
func (c *call) refuse(err error) Decision {
	c.d.Reply = c.reply(dhcpv4.MessageTypeNak)
	c.d.Reply.Options[dhcpv4.OptionMessage.Code()] = []byte("address not available to this client")
	c.address(netip.Addr{})
	return c.drop(Refused, "%v", err)
}

// decline puts an address into quarantine that the client found in use.
func (c *call) decline(ctx context.Context) Decision {
	ip := addrOption(c.Message, dhcpv4.OptionRequestedIPAddress)
	if !c.giveUp(ip) {
		return c.d
	}
	if err := c.reg.Lessor.Decline(ctx, c.d.Device.ID, ip); err != nil {
		return c.gone(err)
	}
	return c.given(Declined)
}

// release ends a lease.
func (c *call) release(ctx context.Context) Decision {
	if !c.giveUp(addr(c.Message.ClientIPAddr)) {
		return c.d
	}
	if err := c.reg.Lessor.Release(ctx, c.d.Device.ID); err != nil {
		return c.gone(err)
	}
	return c.given(Released)
}

// giveUp says whether the device may give up the address by this message. One that
// comes from where the device no longer is was sent for an interface, not for the
// device.
func (c *call) giveUp(ip netip.Addr) bool {
	switch {
	case c.elsewhere(c.pool):
		c.drop(Ignored, "it is meant for server %v", addrOption(c.Message, dhcpv4.OptionServerIdentifier))
	case !ip.IsValid():
		c.drop(Ignored, "it names no address")
	case c.held != nil && c.held.IP != ip:
		c.drop(Ignored, "device %q has %v, not %v", c.d.Device.ID, c.held.IP, ip)
	case c.held != nil && c.held.Attachment != nil && !c.here():
		c.drop(Ignored, "device %q is at %v by now", c.d.Device.ID, c.held.Attachment.At)
	default:
		return c.authorised()
	}
	return false
}

// gone ends the handling when an address could not be given up.
func (c *call) gone(err error) Decision {
	for _, known := range []error{registry.ErrNoLease, registry.ErrNotYours, registry.ErrFull} {
		if errors.Is(err, known) {
			return c.drop(Ignored, "%v", err)
		}
	}
	return c.failed(err)
}

// given ends the handling of an address that was given up; there is no answer.
func (c *call) given(v Verdict) Decision {
	c.d.Verdict = v
	if c.held != nil {
		c.d.Lease, c.d.Previous, c.d.Detach = *c.held, c.held.Attachment, true
	}
	return c.d
}

// inform tells the parameters to a client that has its address already.
func (c *call) inform() Decision {
	ip := addr(c.Message.ClientIPAddr)
	if c.held == nil || c.held.IP != ip {
		return c.drop(Ignored, "device %q asks for parameters with address %v, which it does not have here", c.d.Device.ID, ip)
	}
	c.d.Verdict, c.d.Lease = Informed, *c.held
	c.answer(dhcpv4.MessageTypeAck, netip.Addr{})
	return c.d
}
