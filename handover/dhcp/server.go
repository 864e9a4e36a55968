package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Server answers DHCP messages. It may be used by many goroutines; messages of one
// device are best handled one after the other.
type Server struct {
	reg    *registry.Registry
	relays map[network.PortRef]bool
	guard  *guard
}

// Options of a server.
type Options struct {
	// Relays are the ports behind which a relay agent is trusted: only there the
	// source of a frame may be another's than the device's.
	Relays []network.PortRef
}

// New returns a server for the devices of the registry.
func New(reg *registry.Registry, o Options) *Server {
	s := &Server{reg: reg, relays: make(map[network.PortRef]bool, len(o.Relays)), guard: newGuard()}
	for _, p := range o.Relays {
		s.relays[p] = true
	}
	return s
}

// Request is a message from a client and how it came.
type Request struct {
	// Message has been read by Parse or Decode.
	Message *dhcpv4.DHCPv4
	// Src is the source of the frame, At the port where it came in.
	Src  openflow.MAC
	At   network.PortRef
	Time time.Time
	// AskFirst leaves a message of an unknown device alone, with the verdict
	// Unknown, so that neighbours can be asked who it is.
	AskFirst bool
	// Trusted says that the caller has proof that the device is at the port, like
	// the word of its home domain: its class is not asked.
	Trusted bool
}

// Verdict is what became of a request.
type Verdict string

// The verdicts.
const (
	Offered  Verdict = "offered"
	Granted  Verdict = "granted"
	Refused  Verdict = "refused" // answered with DHCPNAK
	Denied   Verdict = "denied"  // not to be believed; not answered
	Ignored  Verdict = "ignored" // not for this server, or out of date; not answered
	Unknown  Verdict = "unknown" // no such device; not answered
	Released Verdict = "released"
	Declined Verdict = "declined"
	Informed Verdict = "informed"
	// Exhausted says that no address is free, Failed that the lease could not be
	// written; neither is answered, so the client asks again.
	Exhausted Verdict = "exhausted"
	Failed    Verdict = "failed"
)

// Decision is what to do about a request.
type Decision struct {
	Type    dhcpv4.MessageType
	Verdict Verdict
	// Reason says why, in words; it is empty when there is nothing to say.
	Reason string
	// Err is the error behind the verdicts Exhausted and Failed.
	Err error

	// Reply goes out of the port where the request came in, from the address From
	// to the addresses To and ToIP. There is none where silence is due.
	Reply      *dhcpv4.DHCPv4
	To         openflow.MAC
	From, ToIP netip.Addr

	// Device is who asked; it has no ID if that is unknown.
	Device registry.Device
	// Lease is what is granted, once it is committed, or of a release or decline
	// what has ended.
	Lease registry.Lease
	// Attach says that the device has moved or has another address: its packets
	// have to find it at the port where the request came in before the reply is
	// sent. The lease says so; Previous is where it was, or nil.
	Attach   bool
	Previous *registry.Attachment
	// Detach says that the device gave up its address.
	Detach bool
	// Signed says that the message bore a good signature of the device.
	Signed bool

	// reserved is the lease that is granted, until it is committed.
	reserved *registry.Reservation
}

// Commit writes the lease that is granted, if there is one. What could not be
// written is not granted: then the verdict is Failed, and silence is due.
func (d *Decision) Commit(ctx context.Context) error {
	if d.reserved == nil {
		return nil
	}
	err := d.reserved.Commit(ctx)
	d.reserved = nil
	if err != nil {
		d.Verdict, d.Err, d.Reason = Failed, err, err.Error()
		d.Reply, d.Attach = nil, false
	}
	return err
}

// call is the handling of one request.
type call struct {
	*Server
	Request
	chaddr openflow.MAC
	// pool is the device's, held its lease if that has not ended.
	pool registry.Pool
	held *registry.Lease
	// stamp is that of a good signature; forged says why there is none.
	stamp  Stamp
	forged error
	d      Decision
}

// Handle decides about one message. It blocks for the registry's write, if there
// is something to write, but for a lease that it grants: that holds when the
// decision has been committed, which has to happen in any case, and before which the
// reply must not be sent. The device's rules need not wait for it.
func (s *Server) Handle(ctx context.Context, q Request) Decision {
	c := call{Server: s, Request: q, chaddr: hardware(q.Message)}
	c.d.Type = q.Message.MessageType()
	if err := check(q.Message); err != nil {
		return c.drop(Ignored, "%v", err)
	}
	if !c.identify() {
		return c.d
	}
	c.signature()
	switch c.d.Type {
	case dhcpv4.MessageTypeDiscover:
		return c.discover()
	case dhcpv4.MessageTypeRequest:
		return c.request()
	case dhcpv4.MessageTypeDecline:
		return c.decline(ctx)
	case dhcpv4.MessageTypeRelease:
		return c.release(ctx)
	default: // check leaves only this
		return c.inform()
	}
}

// drop ends the handling without an answer.
func (c *call) drop(v Verdict, reason string, args ...any) Decision {
	c.d.Verdict, c.d.Reason = v, fmt.Sprintf(reason, args...)
	return c.d
}

// identify finds out whose message it is, and with it pool and lease.
func (c *call) identify() bool {
	d, known := c.reg.DeviceByMAC(c.chaddr)
	if !c.genuine(d, known) {
		return false
	}
	if !known {
		if d, known = c.stranger(); !known {
			return false
		}
	}
	c.d.Device = d
	pool, ok := c.reg.Pool(d.Pool)
	if !ok {
		c.drop(Ignored, "device %q has no pool that says what to tell it", d.ID)
		return false
	}
	c.pool, c.d.From = pool, pool.ServerID()
	if l, ok := c.reg.Lease(d.ID); ok && !l.Released {
		c.held = &l
	}
	return true
}

// genuine checks that the frame's source and the client's hardware address belong
// to one device.
func (c *call) genuine(d registry.Device, known bool) bool {
	switch {
	case c.Src.IsZero() || c.Src.IsMulticast():
		c.drop(Denied, "frame from %v, which is no host's address", c.Src)
		return false
	case addr(c.Message.GatewayIPAddr).IsValid():
		if !c.relays[c.At] {
			c.drop(Denied, "relayed by %v, but no relay is configured at %v", c.Message.GatewayIPAddr, c.At)
			return false
		}
		return true
	case c.Src == c.chaddr:
		return true
	}
	if known && d.Has(c.Src) {
		return true
	}
	c.d.Device = d
	switch sender, other := c.reg.DeviceByMAC(c.Src); {
	case known:
		c.drop(Denied, "message of device %q in a frame from %v, which is not its address", d.ID, c.Src)
	case other:
		c.d.Device = sender
		c.drop(Denied, "message for hardware address %v in a frame from device %q, whose it is not", c.chaddr, sender.ID)
	default:
		c.drop(Unknown, "message for hardware address %v in a frame from %v, both unknown", c.chaddr, c.Src)
	}
	return false
}

// stranger decides about a message of a device that nobody knows.
func (c *call) stranger() (registry.Device, bool) {
	if c.AskFirst {
		c.drop(Unknown, "no device has %v", c.chaddr)
		return registry.Device{}, false
	}
	asks := c.d.Type == dhcpv4.MessageTypeDiscover || c.d.Type == dhcpv4.MessageTypeRequest
	if pool, ok := c.reg.LearningPool(); !ok || !asks || c.elsewhere(pool) {
		c.drop(Unknown, "no device has %v", c.chaddr)
		return registry.Device{}, false
	}
	d, err := c.reg.Learn(c.chaddr)
	if err != nil {
		c.d.Err = err
		c.drop(Unknown, "%v", err)
		return registry.Device{}, false
	}
	return d, true
}

// elsewhere says whether the client has chosen another server.
func (c *call) elsewhere(p registry.Pool) bool {
	id := addrOption(c.Message, dhcpv4.OptionServerIdentifier)
	return id.IsValid() && id != p.ServerID()
}

// signature looks at the signature, also when nothing depends on it: each counts
// once, even if it need not have been there.
func (c *call) signature() {
	if len(c.d.Device.Key) == 0 {
		c.forged = ErrUnsigned
		return
	}
	c.stamp, c.forged = c.verify(c.d.Device, c.Message, c.Src, c.Time)
	c.d.Signed = c.forged == nil
}

// Verify says whether the message was signed by the device, for a frame with that
// source, and did not come before.
func (s *Server) Verify(d registry.Device, m *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) error {
	_, err := s.verify(d, m, src, now)
	return err
}

func (s *Server) verify(d registry.Device, m *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) (Stamp, error) {
	stamp, err := Verify(d.Key, m, src, now)
	if err != nil {
		return Stamp{}, err
	}
	return stamp, s.guard.use(d.ID, stamp, s.reg.Signed(d.ID), now)
}

// here says whether the message came from where the device is.
func (c *call) here() bool {
	return c.held != nil && c.held.Attachment != nil && c.held.Attachment.At == c.At && c.held.Attachment.MAC == c.Src
}

// authorised says whether the device may be at the port where the message came in,
// or ends the handling.
func (c *call) authorised() bool {
	if c.Trusted || c.here() {
		return true
	}
	class := c.reg.ClassOf(c.d.Device)
	switch class.Trigger {
	case registry.TriggerOpen:
		return true
	case registry.TriggerSigned:
		if c.forged == nil {
			return true
		}
		c.drop(Denied, "device %q moves only by signed requests: %v", c.d.Device.ID, c.forged)
		return false
	}
	if slices.Contains(c.d.Device.Ports, c.At) || slices.Contains(class.Ports, c.At) {
		return true
	}
	if class.Trigger == "" && (c.held == nil || c.held.Attachment == nil) {
		return true // learned, and nowhere yet
	}
	c.drop(Denied, "port %v is not one where device %q may attach", c.At, c.d.Device.ID)
	return false
}

// failed ends the handling because of an error of the registry.
func (c *call) failed(err error) Decision {
	v := Failed
	if errors.Is(err, registry.ErrExhausted) {
		v = Exhausted
	}
	c.d.Err = err
	return c.drop(v, "%v", err)
}
