package plugin

import (
	"context"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/handover/domain"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/openflow"
)

// neighbours is what the service asks of the protocol between domains; a
// *domain.Service.
type neighbours interface {
	Register(*api.API)
	Restore(context.Context) error
	Run(context.Context)
	Upstream(id string) (string, bool)
	Record(id string) (domain.Record, bool)
}

// receiver is what it asks of this domain as one to which devices come, a *domain.Receiver:
// whether a DHCP message may be handled now. It tells that a device has got its address at
// an edge port, and that one has left.
type receiver interface {
	Admit(mac openflow.MAC, h domain.Heading, e *domain.Evidence) domain.Admission
	Attached(id string, e *domain.Evidence)
	Left(id string)
}

// origin is what it asks of this domain as one that devices leave, a *domain.Origin.
type origin interface {
	Announce(ctx context.Context, id, peer string, h domain.Heading) error
	Abandon(ctx context.Context, id string) error
}

// maxHeldBack bounds the DHCP messages that wait for something.
const maxHeldBack = 4096

// heldBack are DHCP messages that wait: for a word about their hardware address, or
// for a way. It has the latest of each.
type heldBack struct {
	mu       sync.Mutex
	messages map[openflow.MAC]incoming
}

func (h *heldBack) keep(in incoming) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.messages == nil {
		h.messages = map[openflow.MAC]incoming{}
	}
	if _, known := h.messages[in.chaddr]; known || len(h.messages) < maxHeldBack {
		h.messages[in.chaddr] = in
	}
}

func (h *heldBack) take(mac openflow.MAC) (incoming, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	in, ok := h.messages[mac]
	delete(h.messages, mac)
	return in, ok
}

// takeIf takes the messages of which f is true.
func (h *heldBack) takeIf(f func(incoming) bool) []incoming {
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

// admitted says whether a DHCP message may be handled now. One that has to wait
// for neighbours is kept until Resume.
func (s *intake) admitted(in incoming) bool {
	if s.domain == nil {
		return true
	}
	s.held.keep(in)
	if s.receiver.Admit(in.chaddr, headingTo(in), evidence(in)) == domain.Wait {
		return false
	}
	s.held.take(in.chaddr)
	return true
}

// resume has a message handled that was kept.
func (s *intake) resume(mac openflow.MAC) {
	if in, ok := s.held.take(mac); ok {
		s.again(in)
	}
}

// trusted says whether the word of its domain shows that the device is where the
// message came from, without which it would not have been admitted: a visitor has no
// key here.
func (s *intake) trusted(in incoming) bool {
	d, ok := s.registry.DeviceByMAC(in.chaddr)
	return ok && d.Home != "" && s.domain != nil
}

// vouchedFor says whether the home of a visitor that signs has said that the message
// is the visitor's: it does so for every place where it was not before, or the
// message is not admitted.
func (s *intake) vouchedFor(d registry.Device) bool {
	if d.Home == "" || s.domain == nil {
		return false
	}
	r, ok := s.domain.Record(d.ID)
	return ok && r.Signed && !r.Gone
}

func headingTo(in incoming) domain.Heading {
	at := in.at
	return domain.Heading{At: &at, MAC: in.src}
}

func evidence(in incoming) *domain.Evidence {
	return &domain.Evidence{Src: in.src, Message: in.message}
}

// tellArrived tells the protocol between domains that a device is here.
func (s *intake) tellArrived(id string, in incoming) {
	if s.domain != nil {
		s.receiver.Attached(id, evidence(in))
	}
}

// visitorClass is the class of visitors, by how their own domain wants them moved.
func visitorClass(p registry.Policy) string {
	if p == registry.PolicySeamless {
		return registry.VisitorsSeamless
	}
	return registry.VisitorsSaving
}

// meetNeighbours makes the protocol between domains, if there are neighbours.
func (s *Service) meetNeighbours(o Options) error {
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
