package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// Server answers DHCP messages. Its methods may be called concurrently; messages of one device
// should be handled one after the other.
type Server struct {
	reg    *registry.Registry
	relays map[network.PortRef]bool
	guard  *replayGuard
}

// Options holds the options of a server.
type Options struct {
	// Relays holds the ports behind which a relay agent is trusted. Only at these ports may the
	// source of a frame belong to a host other than the device.
	Relays []network.PortRef
}

// New returns a server for the devices of the registry.
func New(reg *registry.Registry, o Options) *Server {
	s := &Server{reg: reg, relays: make(map[network.PortRef]bool, len(o.Relays)), guard: newReplayGuard()}
	for _, p := range o.Relays {
		s.relays[p] = true
	}
	return s
}

// Request is a message from a client, and where it came from.
type Request struct {
	// Message was returned by Parse or Decode.
	Message *dhcpv4.DHCPv4
	// Src is the source of the frame, and At the port where the frame came in.
	Src  openflow.MAC
	At   network.PortRef
	Time time.Time
	// AskFirst makes the server ignore a message of an unknown device, with the verdict Unknown,
	// so that neighbours can be asked about it.
	AskFirst bool
	// Trusted reports whether the caller has proof that the device is at the port, such as a
	// statement of its home domain. Then the class's trigger is not checked.
	Trusted bool
}

// Verdict is the outcome of a request.
type Verdict string

// The verdicts.
const (
	Offered  Verdict = "offered"
	Granted  Verdict = "granted"
	Refused  Verdict = "refused" // answered with DHCPNAK
	Denied   Verdict = "denied"  // wrong source or relay, or no move that the device's class allows; not answered
	Ignored  Verdict = "ignored" // not for this server, or outdated; not answered
	Unknown  Verdict = "unknown" // no such device; not answered
	Released Verdict = "released"
	Declined Verdict = "declined"
	Informed Verdict = "informed"
	// Exhausted means that no address is free. Failed means that the lease could not be written.
	// Neither is answered, so the client asks again.
	Exhausted Verdict = "exhausted"
	Failed    Verdict = "failed"
)

// Decision is the result of handling a request: the verdict, the reply and what else the caller has to
// do.
type Decision struct {
	Type    dhcpv4.MessageType
	Verdict Verdict
	// Reason explains the verdict; it may be empty.
	Reason string
	// Err is the error behind the verdicts Exhausted and Failed.
	Err error

	// Reply goes out of the port where the request came in, from the address From to the addresses
	// To and ToIP. It is nil if there must be no answer.
	Reply      *dhcpv4.DHCPv4
	To         openflow.MAC
	From, ToIP netip.Addr

	// Device is the device that asked; it has no ID if that is unknown.
	Device registry.Device
	// Lease is the granted lease, which is valid once it is committed, or the lease that a release
	// or decline has ended.
	Lease registry.Lease
	// Attach reports whether the device has moved or has another address. Then rules must lead its
	// packets to the port where the request came in before the reply is sent. Lease.Attachment is
	// that place, and Previous the place before, or nil.
	Attach   bool
	Previous *registry.Attachment
	// Detach reports whether the device gave up its address.
	Detach bool
	// Signed reports whether the message had a valid signature of the device.
	Signed bool

	// reserved is the granted lease until it is committed.
	reserved *registry.Reservation
}

// Commit writes the granted lease, if there is one. If the write fails, the lease is not granted: the
// verdict becomes Failed, and there must be no answer.
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

// call holds the state of handling one request.
type call struct {
	server *Server
	Request
	chaddr openflow.MAC
	// pool is the device's pool. lease is its lease, or nil if it has none or has released it.
	pool  registry.Pool
	lease *registry.Lease
	// stamp is the stamp of a valid signature. signErr is the reason why there is none.
	stamp    Stamp
	signErr  error
	decision Decision
}

// Handle decides about one message. It waits for the registry's writes, except that of a granted
// lease. That lease is valid once the decision has been committed. Every decision must be
// committed, and the reply must not be sent before. The device's rules need not wait for the
// commit.
func (s *Server) Handle(ctx context.Context, q Request) Decision {
	c := call{server: s, Request: q, chaddr: hardware(q.Message)}
	c.decision.Type = q.Message.MessageType()
	if err := check(q.Message); err != nil {
		return c.drop(Ignored, "%v", err)
	}
	if !c.identify() {
		return c.decision
	}
	c.signature()
	switch c.decision.Type {
	case dhcpv4.MessageTypeDiscover:
		return c.discover()
	case dhcpv4.MessageTypeRequest:
		return c.request()
	case dhcpv4.MessageTypeDecline:
		return c.decline(ctx)
	case dhcpv4.MessageTypeRelease:
		return c.release(ctx)
	default: // check admits no other type
		return c.inform()
	}
}

// drop ends the handling without an answer.
func (c *call) drop(v Verdict, reason string, args ...any) Decision {
	c.decision.Verdict, c.decision.Reason = v, fmt.Sprintf(reason, args...)
	return c.decision
}

// identify determines the device that sent the message, its pool and its lease. It returns false
// if the handling has ended.
func (c *call) identify() bool {
	d, known := c.server.reg.DeviceByMAC(c.chaddr)
	if !c.fromDevice(d, known) {
		return false
	}
	if !known && c.decision.Type == dhcpv4.MessageTypeInform && !c.AskFirst {
		// A host that has an address already and only asks for parameters is not learned as a device.
		if pool, ok := c.server.reg.LearningPool(); ok {
			c.pool, c.decision.From = pool, pool.ServerID()
			return true
		}
	}
	if !known {
		if d, known = c.unknownDevice(); !known {
			return false
		}
	}
	c.decision.Device = d
	pool, ok := c.server.reg.Pool(d.Pool)
	if !ok {
		c.drop(Ignored, "device %q has no pool that says what to tell it", d.ID)
		return false
	}
	c.pool, c.decision.From = pool, pool.ServerID()
	if l, ok := c.server.reg.Lease(d.ID); ok && !l.Released {
		c.lease = &l
	}
	return true
}

// fromDevice checks that the frame's source and the client's hardware address belong to one
// device. It returns false if the handling has ended.
func (c *call) fromDevice(d registry.Device, known bool) bool {
	switch {
	case c.Src.IsZero() || c.Src.IsMulticast():
		c.drop(Denied, "frame from %v, which is no host's address", c.Src)
		return false
	case addr(c.Message.GatewayIPAddr).IsValid():
		if !c.server.relays[c.At] {
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
	c.decision.Device = d
	switch sender, other := c.server.reg.DeviceByMAC(c.Src); {
	case known:
		c.drop(Denied, "message of device %q in a frame from %v, which is not its address", d.ID, c.Src)
	case other:
		c.decision.Device = sender
		c.drop(Denied, "message for hardware address %v in a frame from device %q, whose it is not", c.chaddr, sender.ID)
	default:
		c.drop(Unknown, "message for hardware address %v in a frame from %v, both unknown", c.chaddr, c.Src)
	}
	return false
}

// unknownDevice handles a message of an unknown device, which may be learned. It returns false if
// the handling has ended.
func (c *call) unknownDevice() (registry.Device, bool) {
	if c.AskFirst {
		c.drop(Unknown, "no device has %v", c.chaddr)
		return registry.Device{}, false
	}
	asks := c.decision.Type == dhcpv4.MessageTypeDiscover || c.decision.Type == dhcpv4.MessageTypeRequest
	if pool, ok := c.server.reg.LearningPool(); !ok || !asks || c.otherServer(pool) {
		c.drop(Unknown, "no device has %v", c.chaddr)
		return registry.Device{}, false
	}
	d, err := c.server.reg.Learn(c.chaddr)
	if err != nil {
		c.decision.Err = err
		c.drop(Unknown, "%v", err)
		return registry.Device{}, false
	}
	return d, true
}

// otherServer reports whether the message names another server than the one of pool p.
func (c *call) otherServer(p registry.Pool) bool {
	id := addrOption(c.Message, dhcpv4.OptionServerIdentifier)
	return id.IsValid() && id != p.ServerID()
}

// signature checks the signature, even if the decision does not depend on it: each signature is
// accepted only once, even where none is required.
func (c *call) signature() {
	if len(c.decision.Device.Key) == 0 {
		c.signErr = ErrUnsigned
		return
	}
	c.stamp, c.signErr = c.server.verify(c.decision.Device, c.Message, c.Src, c.Time)
	c.decision.Signed = c.signErr == nil
}

// Verify returns an error unless the device has signed the message for a frame with the source src, and
// the signature has not been used before.
func (s *Server) Verify(d registry.Device, m *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) error {
	_, err := s.verify(d, m, src, now)
	return err
}

// verify does the work of Verify, and also returns the stamp.
func (s *Server) verify(d registry.Device, m *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) (Stamp, error) {
	stamp, err := Verify(d.Key, m, src, now)
	if err != nil {
		return Stamp{}, err
	}
	return stamp, s.guard.use(d.ID, stamp, s.reg.Signed(d.ID), now)
}

// atHome reports whether the message came from the place where the device is attached.
func (c *call) atHome() bool {
	return c.lease != nil && c.lease.Attachment != nil && c.lease.Attachment.At == c.At && c.lease.Attachment.MAC == c.Src
}

// authorised reports whether the device may be at the port where the message came in. If not, the
// handling has ended.
func (c *call) authorised() bool {
	if c.Trusted || c.atHome() {
		return true
	}
	class := c.server.reg.ClassOf(c.decision.Device)
	switch class.Trigger {
	case registry.TriggerOpen:
		return true
	case registry.TriggerSigned:
		if c.signErr == nil {
			return true
		}
		c.drop(Denied, "device %q moves only by signed requests: %v", c.decision.Device.ID, c.signErr)
		return false
	}
	if slices.Contains(c.decision.Device.Ports, c.At) || slices.Contains(class.Ports, c.At) {
		return true
	}
	if class.Trigger == "" && (c.lease == nil || c.lease.Attachment == nil) {
		return true // a learned device that has no place yet
	}
	c.drop(Denied, "port %v is not one where device %q may attach", c.At, c.decision.Device.ID)
	return false
}

// failed ends the handling because of an error of the registry.
func (c *call) failed(err error) Decision {
	v := Failed
	if errors.Is(err, registry.ErrExhausted) {
		v = Exhausted
	}
	c.decision.Err = err
	return c.drop(v, "%v", err)
}
