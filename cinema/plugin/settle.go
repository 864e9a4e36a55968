package plugin

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// settleEvery is how often is looked whether all is known again after a start.
const settleEvery = 50 * time.Millisecond

// takeOver waits until it is known again what gateways want, and where everything is that
// trees of before led over, but not for ever. Until it returns, switches are left as they are.
func (s *Service) takeOver(ctx context.Context) {
	for _, x := range s.Channels.Items() {
		s.ways.restore(&x.Value)
	}
	settle, cancel := context.WithTimeout(ctx, s.Settle)
	defer cancel()
	s.Treatments.Await(settle)
	why := s.unknown()
	for why != "" && tasks.Sleep(settle, settleEvery) == nil {
		why = s.unknown()
	}
	if why != "" && ctx.Err() == nil {
		s.Log.Warn("channels go on with what is known", "after", s.Settle, "unknown", why)
	}
	close(s.started)
}

// unknown says what is not known yet of what there was before; empty if all is.
func (s *Service) unknown() string {
	for _, a := range s.sources.registry.List() {
		if !s.sources.heard(a.Name) {
			return "what ingress gateway " + a.Name + " has"
		}
		st := a.State()
		if _, _, err := s.place(&st); err != nil {
			return "where ingress gateway " + a.Name + " stands"
		}
	}
	for _, a := range s.egress.List() {
		if !s.viewers.heard(a.Name) {
			return "what egress gateway " + a.Name + " wants"
		}
		st := a.State()
		if _, _, err := s.place(&st); err != nil {
			return "where egress gateway " + a.Name + " stands"
		}
	}
	return s.ways.unknown()
}
