package handover

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// packetHandler handles the packets of devices that switches send to the controller, above all
// DHCP.
type packetHandler struct {
	*core
	placement         *placement
	guards            *guards
	dhcp              *dhcp.Server
	awaitingNeighbour pendingMessages // messages that wait for a neighbour's answer
	awaitingPath      pendingMessages // requests that wait for a path

	// ports holds the ports that came up and have had no DHCP message since. The lock of core
	// guards it.
	ports map[network.PortRef]association
}

// associationTime bounds T_a, the time of the association. A client waits for up to ten seconds before
// its first message (RFC 2131, 4.4.1); a message that comes later did not wait for the port.
const associationTime = 10 * time.Second

// association records how a device joined an edge port, as far as the controller sees it.
type association struct {
	up    time.Time // when the port came up
	heard time.Time // when a host at the port was first heard; zero if none was
}

// until returns how long the association took if a device's first DHCP message arrives now. A
// device that was heard before was there already: the time in between is idle time and not part of
// the association.
func (a association) until(now time.Time) time.Duration {
	if !a.heard.IsZero() && a.heard.Before(now) {
		now = a.heard
	}
	took := now.Sub(a.up)
	if took < 0 || took > associationTime {
		return 0
	}
	return took
}

// incoming is a DHCP message of a client that a switch has sent to the controller.
type incoming struct {
	at          network.PortRef
	src, chaddr openflow.MAC
	message     []byte
	arrived     time.Time
	// seen reports whether the message was made from a packet of the device. Then nobody waits for
	// an answer.
	seen bool
}

// cause returns the cause of a move by the message, for its record.
func (in incoming) cause(kind dhcpv4.MessageType) string {
	if in.seen {
		return "a packet of the device"
	}
	return "DHCP " + kind.String()
}

// handleDHCP handles a DHCP message. It runs as a job of the device in the work queue.
func (s *packetHandler) handleDHCP(run context.Context, in incoming) {
	ctx, cancel := context.WithTimeout(run, s.settings.RequestTimeout)
	defer cancel()
	m, err := dhcp.Decode(in.message)
	if err != nil {
		s.metrics.dhcp.WithLabelValues("malformed").Inc()
		return
	}
	if s.postpone(in, m) || !s.admit(in) {
		s.metrics.dhcp.WithLabelValues("waiting").Inc()
		return
	}
	if s.outdated(in) {
		s.metrics.dhcp.WithLabelValues("outdated").Inc()
		return
	}
	if s.refusesClaim(in, m) {
		s.metrics.dhcp.WithLabelValues("claimed").Inc()
		return
	}
	began := time.Now()
	d := s.dhcp.Handle(ctx, dhcp.Request{Message: m, Src: in.src, At: in.at, Time: in.arrived, Trusted: s.trusted(in)})
	s.recordExchange(&d, in)
	if d.Attach || d.Verdict == dhcp.Granted && s.unserved(d.Device.ID) {
		s.handleArrival(ctx, &d, in, began.Sub(in.arrived))
		return
	}
	_ = d.Commit(ctx) // the verdict reports a failure
	s.reportVerdict(&d, in)
	if d.Detach {
		s.handleLeft(ctx, &d)
	}
	if d.Verdict == dhcp.Granted {
		s.notifyArrived(d.Device.ID, in) // the device has not moved, but a neighbour may not know that
		s.placement.confirmMove(d.Device.ID)
	}
	s.reply(&d, in)
}

// reply sends the answer to the device, if the device has asked.
func (s *packetHandler) reply(d *dhcp.Decision, in incoming) {
	if d.Reply == nil || in.seen {
		return
	}
	if err := s.net.Send(in.at, d.Frame(serverMAC)); err != nil {
		s.warnings.Warn(s.log, "DHCP answer not sent", "device", d.Device.ID, "port", in.at, "error", err)
	}
}

// reportVerdict counts a message, and reports it if the device got less than it asked for.
func (s *packetHandler) reportVerdict(d *dhcp.Decision, in incoming) {
	s.metrics.dhcp.WithLabelValues(string(d.Verdict)).Inc()
	switch d.Verdict {
	case dhcp.Denied, dhcp.Refused, dhcp.Exhausted, dhcp.Failed, dhcp.Declined:
	default:
		s.log.Debug("DHCP", "device", d.Device.ID, "type", d.Type, "verdict", d.Verdict, "reason", d.Reason, "port", in.at)
		return
	}
	s.reportRefused("dhcp."+string(d.Verdict), "DHCP message refused", map[string]any{
		"device": d.Device.ID, "type": d.Type.String(), "port": in.at.String(), "mac": in.src, "chaddr": in.chaddr, "reason": d.Reason,
	})
}

// outdated reports whether a postponed message is older than the device's last granted request.
// Such a message names a place that the device has left.
func (s *packetHandler) outdated(in incoming) bool {
	d, _ := s.registry.DeviceByMAC(in.chaddr)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.placement.mobiles[d.ID]
	return m != nil && in.arrived.Before(m.granted)
}

// recordExchange records when the device's first message at the port arrived, and how long the
// port had been up by then.
func (s *packetHandler) recordExchange(d *dhcp.Decision, in incoming) {
	if d.Device.ID == "" {
		return
	}
	m := s.placement.mobileOf(d.Device.ID)
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
		// Only the first message counts: later ones did not wait for the port.
		m.exchange.ta = a.until(in.arrived)
		delete(s.ports, in.at)
	}
}

// unserved reports whether the device needs new rules, as placement.needsRules says.
func (s *packetHandler) unserved(id string) bool { return s.placement.needsRules(id, s.net.Topology()) }

// handleLeft removes the rules of a device that has left.
func (s *packetHandler) handleLeft(ctx context.Context, d *dhcp.Decision) {
	if err := s.placement.detach(ctx, d.Device.ID, d.Lease.IP, d.Previous, d.Type.String()); err != nil {
		s.log.Warn("rules of a device that has left could not be removed", "device", d.Device.ID, "error", err)
	}
	s.notifyLeft(d.Device.ID)
}

// handleArrival serves the device at the place that its request came from, with the granted lease. If
// the rules or the lease cannot be written, the device gets no answer, because an answer would mislead
// it, and stays at its previous place.
func (s *packetHandler) handleArrival(ctx context.Context, d *dhcp.Decision, in incoming, queue time.Duration) {
	kind := KindMove
	switch {
	case d.Previous == nil:
		kind = KindAttach
	case !d.Attach: // the device is where it was, without working rules
		kind = KindReroute
	}
	op := s.placement.newOperation(d.Device, d.Lease.IP, kind, in.cause(d.Type), in.arrived)
	op.record.Parts.Queue = Duration(queue)
	s.placement.setVia(op.mobile, op.device)
	unplaced, unwritten := s.serveAndCommit(ctx, op, d, in)
	s.reportVerdict(d, in)
	s.change(func() { op.mobile.exchange = exchange{}; op.mobile.advance(stepArrive) })
	switch {
	case unwritten != nil:
		s.rollbackLease(ctx, op.id)
	case unplaced != nil:
		s.rollbackAttachment(ctx, d)
	}
	err := errors.Join(unplaced, unwritten)
	id := s.placement.finish(op, err)
	if err != nil {
		return
	}
	s.net.PlaceHost(in.src, d.Lease.IP, in.at)
	s.notifyArrived(d.Device.ID, in)
	s.reportDuplicate(d, in)
	s.guards.updateAnswers(ctx, op.id)
	to := *d.Lease.Attachment
	s.start(func(ctx context.Context) { s.measureEdge(ctx, id, to, d.Lease.IP) })
}

// serveAndCommit serves the device at its new place while its lease is written, and answers the
// device as soon as both are done. Rules need not wait for the store: after a crash in between
// they are restored from what the store holds.
func (s *packetHandler) serveAndCommit(ctx context.Context, op *operation, d *dhcp.Decision, in incoming) (unplaced, unwritten error) {
	op.written = make(chan struct{})
	served := make(chan error, 1)
	stored := make(chan error, 1)
	var took time.Duration
	go func() { served <- s.placement.serveAt(ctx, op, d.Previous, d.Lease.Attachment) }()
	go func() {
		began := time.Now()
		err := d.Commit(ctx)
		took = time.Since(began)
		stored <- err
	}()
	// After the rules are written, serveAt still has to remove the old ones.
	ended := false
	select {
	case <-op.written:
	case unplaced = <-served:
		ended = true
	}
	unwritten = <-stored
	var answered time.Time
	if unwritten == nil && op.isWritten() {
		s.reply(d, in)
		answered = time.Now()
	}
	if !ended {
		unplaced = <-served
	}
	op.record.Parts.Store = Duration(took)
	if !answered.IsZero() {
		op.record.Parts.Ta = Duration(op.mobile.exchange.ta)
		op.record.Parts.Td = max(Duration(answered.Sub(op.mobile.exchange.first))-op.record.Parts.Tf, 0)
	}
	return unplaced, unwritten
}

// rollbackLease restores a device's rules to the registry's state after its new lease could not be
// stored: its previous place, or none.
func (s *packetHandler) rollbackLease(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.settings.RequestTimeout)
	defer cancel()
	s.placement.removeDetached(ctx, id)
	s.placement.reroute(ctx, id)
}

// rollbackAttachment restores the registry's place of a device whose move failed.
func (s *packetHandler) rollbackAttachment(ctx context.Context, d *dhcp.Decision) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.settings.RequestTimeout)
	defer cancel()
	if err := s.registry.Lessor.SetAttachment(ctx, d.Device.ID, d.Previous); err != nil {
		s.log.Error("the stored place of a device is not where its rules lead", "device", d.Device.ID, "error", err)
	}
}

// measureEdge measures T_e, the one-way latency between the device and its edge switch, and adds it to
// a record.
func (s *packetHandler) measureEdge(ctx context.Context, id uint64, at registry.Attachment, ip netip.Addr) {
	te, ok := s.guards.edgeLatency(ctx, at.At, ip, at.MAC)
	if !ok {
		return
	}
	s.metrics.parts.WithLabelValues("t_e").Observe(te.Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.placement.history.at(id); r != nil {
		r.Parts.Te = Duration(te)
		r.Parts.sum()
	}
}

// refusesClaim reports whether a message is refused because its MAC address is in use at another
// port that is up. A valid signature proves that the device has moved. So does the statement of a
// visitor's home domain, which has checked the signature.
func (s *packetHandler) refusesClaim(in incoming, m *dhcpv4.DHCPv4) bool {
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
	s.reportRefused("device.at-two-ports", "DHCP message refused: one MAC address at two ports", map[string]any{"device": d.ID, "mac": in.src, "was": l.Attachment.At.String(), "is": in.at.String(), "refused": true})
	return true
}

// reportDuplicate reports that an interface sends a request at one port while its previous port is
// still up. On cables that means two devices with one MAC address; on radio it is a move like any
// other.
func (s *packetHandler) reportDuplicate(d *dhcp.Decision, in incoming) {
	p := d.Previous
	if p == nil || p.Peer != "" || p.MAC != in.src || p.At == in.at || !s.portUp(p.At) {
		return
	}
	s.reportRefused("device.at-two-ports", "one MAC address at two ports", map[string]any{
		"device": d.Device.ID, "mac": in.src, "was": p.At.String(), "is": in.at.String(), "signed": d.Signed,
	})
}

const dhcpClientPort, dhcpServerPort = 68, 67

// maxPending bounds the DHCP messages that wait for something.
const maxPending = 4096

// pendingMessages holds the latest DHCP message of each hardware address that waits for a
// neighbour's answer or for a path.
type pendingMessages struct {
	mu       sync.Mutex
	messages map[openflow.MAC]incoming
}

// keep stores a message in place of an earlier one of the same hardware address. If the bound is
// reached, messages of further addresses are dropped.
func (h *pendingMessages) keep(in incoming) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.messages == nil {
		h.messages = map[openflow.MAC]incoming{}
	}
	if _, known := h.messages[in.chaddr]; known || len(h.messages) < maxPending {
		h.messages[in.chaddr] = in
	}
}

// take removes and returns the message of a hardware address.
func (h *pendingMessages) take(mac openflow.MAC) (incoming, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	in, ok := h.messages[mac]
	delete(h.messages, mac)
	return in, ok
}

// takeIf removes and returns the messages for which f returns true.
func (h *pendingMessages) takeIf(f func(incoming) bool) []incoming {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []incoming
	for mac, in := range h.messages {
		if f(in) {
			out = append(out, in)
			delete(h.messages, mac)
		}
	}
	return out
}

// admit reports whether a DHCP message may be handled now. A message that has to wait for
// neighbours is kept until Resume.
func (s *packetHandler) admit(in incoming) bool {
	if s.domain == nil {
		return true
	}
	s.awaitingNeighbour.keep(in)
	if s.receiver.Admit(in.chaddr, headingTo(in), evidence(in)) == domain.Wait {
		return false
	}
	s.awaitingNeighbour.take(in.chaddr)
	return true
}

// resume handles a message that was kept for neighbours.
func (s *packetHandler) resume(mac openflow.MAC) {
	if in, ok := s.awaitingNeighbour.take(mac); ok {
		s.requeue(in)
	}
}

// trusted reports whether the device is a visitor, which has no key here. Its message is only
// admitted after its home domain has confirmed where the device is.
func (s *packetHandler) trusted(in incoming) bool {
	d, ok := s.registry.DeviceByMAC(in.chaddr)
	return ok && d.Home != "" && s.domain != nil
}

// vouchedFor reports whether the device is a visitor that signs and whose home domain has
// confirmed the message. The home domain confirms each new place, or else the message is not
// admitted.
func (s *packetHandler) vouchedFor(d registry.Device) bool {
	if d.Home == "" || s.domain == nil {
		return false
	}
	r, ok := s.domain.Record(d.ID)
	return ok && r.Signed && !r.Gone
}

// headingTo returns the place that a message came from, as the protocol between domains describes
// it.
func headingTo(in incoming) domain.Heading {
	at := in.at
	return domain.Heading{At: &at, MAC: in.src}
}

// evidence returns the message as evidence for the device's home domain.
func evidence(in incoming) *domain.Evidence {
	return &domain.Evidence{Src: in.src, Message: in.message}
}

// notifyArrived tells the protocol between domains that a device is here.
func (s *packetHandler) notifyArrived(id string, in incoming) {
	if s.domain != nil {
		s.receiver.Attached(id, evidence(in))
	}
}

// visitorClass returns the class of visitors whose home domain wants them moved by policy p.
func visitorClass(p registry.Policy) string {
	if p == registry.PolicySeamless {
		return registry.VisitorsSeamless
	}
	return registry.VisitorsSaving
}

// awaitsPrevious reports whether a message has to wait until its device has the rules again that it
// had before the controller started. Only devices of seamless classes wait: to lose no packets, their
// move has to start from these rules. A request from the device's stored place waits only for
// 2*quietTime.
func (s *packetHandler) awaitsPrevious(in incoming) bool {
	d, _ := s.whose(in.src, in.chaddr)
	l, _ := s.registry.Lease(d.ID)
	if !l.Active(s.now()) || l.Attachment == nil || l.Attachment.Peer != "" || s.registry.ClassOf(d).Policy != registry.PolicySeamless {
		return false
	}
	if in.at == l.Attachment.At && in.src == l.Attachment.MAC && s.now().Sub(in.arrived) > 2*quietTime {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.placement.mobiles[d.ID]
	return !s.ready && (m == nil || m.state == detached)
}

// pathTimeout is how long a request is postponed until the network is known well enough to serve
// the device. A client asks again before it ends.
const pathTimeout = 5 * time.Second

// postpone keeps a DHCP request until a path to its port is known and the device is served as it
// was before the start, and reports whether it did. Shortly after a start links are not yet
// discovered, and a client that gets no answer takes seconds to ask again.
func (s *packetHandler) postpone(in incoming, m *dhcpv4.DHCPv4) bool {
	if m.MessageType() != dhcpv4.MessageTypeRequest || s.now().Sub(in.arrived) > pathTimeout || s.servable(in) {
		return false
	}
	s.awaitingPath.keep(in)
	s.wake() // there may be a path by now
	return true
}

// servable reports whether the network is known well enough to serve the device.
func (s *packetHandler) servable(in incoming) bool { return s.hasPath(in.at) && !s.awaitsPrevious(in) }

// resumePostponed handles the postponed requests that can be served now, or have waited for too
// long.
func (s *packetHandler) resumePostponed() {
	now := s.now()
	for _, in := range s.awaitingPath.takeIf(func(in incoming) bool { return s.servable(in) || now.Sub(in.arrived) > pathTimeout }) {
		s.requeue(in)
	}
}

// requeue queues a message that was kept.
func (s *packetHandler) requeue(in incoming) {
	_, key := s.whose(in.src, in.chaddr)
	if err := s.queue.Add(key, func(ctx context.Context) { s.handleDHCP(ctx, in) }); err != nil {
		s.metrics.dropped.WithLabelValues("waiting").Inc()
	}
}
