package handover

import (
	"context"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// neighbours is what the service needs of a *domain.Service, the protocol between domains.
type neighbours interface {
	Register(*api.API)
	Restore(context.Context) error
	Run(context.Context)
	Upstream(id string) (string, bool)
	Record(id string) (domain.Record, bool)
}

// receiver is what the service needs of a *domain.Receiver, the side of the protocol to which
// devices come. Admit decides whether a DHCP message may be handled now. Attached and Left report
// that a device has got its address at an edge port, or has left.
type receiver interface {
	Admit(mac openflow.MAC, h domain.Heading, e *domain.Evidence) domain.Admission
	Attached(id string, e *domain.Evidence)
	Left(id string)
}

// origin is what the service needs of a *domain.Origin, the side of the protocol that devices
// leave.
type origin interface {
	Announce(ctx context.Context, id, peer string, h domain.Heading) error
	Abandon(ctx context.Context, id string) error
}

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

// connectNeighbours creates the protocol between domains, if neighbours are configured.
func (s *Service) connectNeighbours(o Options) error {
	if len(s.settings.Neighbours) == 0 {
		return nil
	}
	d, err := domain.New(domain.Options{
		Self: s.settings.Domain, Neighbours: s.settings.Neighbours, Host: host{s}, Store: o.Store,
		Emit: s.publish, Log: s.log, Timing: s.settings.Timing, Now: s.now, Dial: o.Dial,
	})
	if err != nil {
		return err
	}
	s.domain, s.origin, s.receiver = d, d.Origin, d.Receiver
	return nil
}
