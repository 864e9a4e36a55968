package plugin

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/handover/dhcp"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// incoming is a DHCP message of a client, as it came from a switch.
type incoming struct {
	at          network.PortRef
	src, chaddr openflow.MAC
	message     []byte
	arrived     time.Time
	// seen says that the message was made of a packet of the device: nobody waits for
	// the answer.
	seen bool
}

// cause returns what a move by the message is due to.
func (in incoming) cause(kind dhcpv4.MessageType) string {
	if in.seen {
		return "a packet of the device"
	}
	return "DHCP " + kind.String()
}

// dhcpMessage handles a DHCP message. It runs in the device's turn of the work queue.
func (s *intake) dhcpMessage(run context.Context, in incoming) {
	ctx, cancel := context.WithTimeout(run, s.settings.RequestTimeout)
	defer cancel()
	m, err := dhcp.Decode(in.message)
	if err != nil {
		s.metrics.dhcp.WithLabelValues("malformed").Inc()
		return
	}
	if s.postponed(in, m) || !s.admitted(in) {
		s.metrics.dhcp.WithLabelValues("waiting").Inc()
		return
	}
	if s.outdated(in) {
		s.metrics.dhcp.WithLabelValues("outdated").Inc()
		return
	}
	if s.claimedTwice(in, m) {
		s.metrics.dhcp.WithLabelValues("claimed").Inc()
		return
	}
	began := time.Now()
	d := s.dhcp.Handle(ctx, dhcp.Request{Message: m, Src: in.src, At: in.at, Time: in.arrived, Trusted: s.trusted(in)})
	s.noteExchange(&d, in)
	if d.Attach || d.Verdict == dhcp.Granted && s.unserved(d.Device.ID) {
		s.arrived(ctx, &d, in, began.Sub(in.arrived))
		return
	}
	_ = d.Commit(ctx) // the verdict tells
	s.tellVerdict(&d, in)
	if d.Detach {
		s.left(ctx, &d)
	}
	if d.Verdict == dhcp.Granted {
		s.tellArrived(d.Device.ID, in) // it is where it was, which may be news to a neighbour
		s.resolved(d.Device.ID)
	}
	s.reply(&d, in)
}

// reply sends the answer to the device, if it has asked.
func (s *intake) reply(d *dhcp.Decision, in incoming) {
	if d.Reply == nil || in.seen {
		return
	}
	if err := s.net.Send(in.at, d.Frame(serverMAC)); err != nil {
		s.strange.Warn(s.log, "DHCP answer not sent", "device", d.Device.ID, "port", in.at, "error", err)
	}
}

// tellVerdict counts a message, and tells of those that got less than they wanted.
func (s *intake) tellVerdict(d *dhcp.Decision, in incoming) {
	s.metrics.dhcp.WithLabelValues(string(d.Verdict)).Inc()
	switch d.Verdict {
	case dhcp.Denied, dhcp.Refused, dhcp.Exhausted, dhcp.Failed, dhcp.Declined:
	default:
		s.log.Debug("DHCP", "device", d.Device.ID, "type", d.Type, "verdict", d.Verdict, "reason", d.Reason, "port", in.at)
		return
	}
	s.tellRefused("dhcp."+string(d.Verdict), "DHCP message refused", map[string]any{
		"device": d.Device.ID, "type": d.Type.String(), "port": in.at.String(), "mac": in.src, "chaddr": in.chaddr, "reason": d.Reason,
	})
}

// outdated says whether a message, which was kept, came before a request of the
// device that has been granted since: it tells where the device no longer is.
func (s *intake) outdated(in incoming) bool {
	d, _ := s.registry.DeviceByMAC(in.chaddr)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mobiles[d.ID]
	return m != nil && in.arrived.Before(m.granted)
}

// noteExchange remembers when the device's first message at the port came, and
// how long the port had been up.
func (s *intake) noteExchange(d *dhcp.Decision, in incoming) {
	if d.Device.ID == "" {
		return
	}
	m := s.mobileOf(d.Device.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Verdict == dhcp.Granted {
		m.granted = in.arrived
	}
	if m.exchange.at == in.at && in.arrived.Sub(m.exchange.first) < exchangeTime {
		return
	}
	m.exchange = exchange{at: in.at, first: in.arrived}
	if a, ok := s.ports[in.at]; ok {
		// It counts once: what comes later was not waiting for the port.
		m.exchange.ta = a.until(in.arrived)
		delete(s.ports, in.at)
	}
}

// unserved says whether the device has no rules, or not those of a plan that
// works.
func (s *intake) unserved(id string) bool { return s.lacking(id, s.net.Topology()) }

// left ends a device's stay.
func (s *intake) left(ctx context.Context, d *dhcp.Decision) {
	if err := s.detach(ctx, d.Device.ID, d.Lease.IP, d.Previous, d.Type.String()); err != nil {
		s.log.Warn("rules of a device that has left are still there", "device", d.Device.ID, "error", err)
	}
	s.tellLeft(d.Device.ID)
}

// arrived has the device served where its request came from, with the lease that it
// is granted. Without rules, or without a lease that outlives this controller, an
// answer would only mislead it: then there is none, and it is where it was before.
func (s *intake) arrived(ctx context.Context, d *dhcp.Decision, in incoming, queue time.Duration) {
	kind := KindMove
	switch {
	case d.Previous == nil:
		kind = KindAttach
	case !d.Attach: // it is where it was, without rules that work
		kind = KindReroute
	}
	t := s.newTrip(d.Device, d.Lease.IP, kind, in.cause(d.Type), in.arrived)
	t.rec.Parts.Queue = Duration(queue)
	s.setVia(t.m, t.device)
	unplaced, unwritten := s.settle(ctx, t, d, in)
	s.tellVerdict(d, in)
	s.change(func() { t.m.exchange = exchange{}; t.m.to(stepCome) })
	switch {
	case unwritten != nil:
		s.takeBack(ctx, t.id)
	case unplaced != nil:
		s.putBack(ctx, d)
	}
	err := errors.Join(unplaced, unwritten)
	id := s.ended(t, err)
	if err != nil {
		return
	}
	s.net.PlaceHost(in.src, d.Lease.IP, in.at)
	s.tellArrived(d.Device.ID, in)
	s.suspect(d, in)
	s.teach(ctx, t.id)
	to := *d.Lease.Attachment
	s.start(func(ctx context.Context) { s.measure(ctx, id, to, d.Lease.IP) })
}

// settle has the device served at its new place while its lease is written, and
// answers it as soon as both is done. Rules need not wait for the store: after a
// crash in between they are again as the store says.
func (s *intake) settle(ctx context.Context, t *trip, d *dhcp.Decision, in incoming) (unplaced, unwritten error) {
	var answered time.Time
	done := afterBoth(func() {
		s.reply(d, in)
		answered = time.Now()
	})
	var took time.Duration
	var writing sync.WaitGroup
	writing.Go(func() {
		began := time.Now()
		unwritten = d.Commit(ctx)
		took = time.Since(began)
		if unwritten == nil {
			done()
		}
	})
	t.written = done
	unplaced = s.place(ctx, t, d.Previous, d.Lease.Attachment)
	writing.Wait()
	t.rec.Parts.Store = Duration(took)
	if !answered.IsZero() {
		t.rec.Parts.Ta = Duration(t.m.exchange.ta)
		t.rec.Parts.Td = max(Duration(answered.Sub(t.m.exchange.first))-t.rec.Parts.Tf, 0)
	}
	return unplaced, unwritten
}

// afterBoth returns what is to be called twice, from any goroutines, and the second
// time calls f.
func afterBoth(f func()) func() {
	var calls atomic.Int32
	return func() {
		if calls.Add(1) == 2 {
			f()
		}
	}
}

// takeBack has a device whose new lease could not be written served as the registry
// knows it: where it was, or nowhere.
func (s *intake) takeBack(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.settings.RequestTimeout)
	defer cancel()
	s.sweep(ctx, id)
	s.reroute(ctx, id)
}

// putBack undoes what the registry noted of a move that could not be made.
func (s *intake) putBack(ctx context.Context, d *dhcp.Decision) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.settings.RequestTimeout)
	defer cancel()
	if err := s.registry.Lessor.SetAttachment(ctx, d.Device.ID, d.Previous); err != nil {
		s.log.Error("a device's place in the store is not where its rules lead", "device", d.Device.ID, "error", err)
	}
}

// measure adds T_e to a record.
func (s *intake) measure(ctx context.Context, id uint64, at registry.Attachment, ip netip.Addr) {
	te, ok := s.edgeLatency(ctx, at.At, ip, at.MAC)
	if !ok {
		return
	}
	s.metrics.parts.WithLabelValues("t_e").Observe(te.Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.history.at(id); r != nil {
		r.Parts.Te = Duration(te)
		r.Parts.sum()
	}
}

// claimedTwice says whether a message is not answered because its MAC address is
// in use at another port that is up. A good signature shows that it has moved, and
// so does the word of a visitor's home, which has looked at the signature.
func (s *intake) claimedTwice(in incoming, m *dhcpv4.DHCPv4) bool {
	if s.settings.Claims != ClaimRefuse {
		return false
	}
	d, _ := s.registry.DeviceByMAC(in.src)
	l, ok := s.registry.Lease(d.ID)
	if !ok || !l.Active(s.now()) || l.Attachment == nil || l.Attachment.MAC != in.src || l.Attachment.At == in.at || !s.portUp(l.Attachment.At) {
		return false
	}
	if s.vouchedFor(d) {
		return false
	}
	if len(d.Key) > 0 {
		if _, err := dhcp.Verify(d.Key, m, in.src, in.arrived); err == nil {
			return false
		}
	}
	s.tellRefused("device.at-two-ports", "DHCP message refused: one MAC address at two ports", map[string]any{"device": d.ID, "mac": in.src, "was": l.Attachment.At.String(), "is": in.at.String(), "refused": true})
	return true
}

// suspect tells when an interface asks at one port while another port, which it
// was at, is still up: on cables that is two devices with one MAC address, on
// radio it is a move like any other.
func (s *intake) suspect(d *dhcp.Decision, in incoming) {
	p := d.Previous
	if p == nil || p.Peer != "" || p.MAC != in.src || p.At == in.at || !s.portUp(p.At) {
		return
	}
	s.tellRefused("device.at-two-ports", "one MAC address at two ports", map[string]any{
		"device": d.Device.ID, "mac": in.src, "was": p.At.String(), "is": in.at.String(), "signed": d.Signed,
	})
}
