package cinema

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// settlePoll is how often the state is checked after a start.
const settlePoll = 50 * time.Millisecond

// awaitNetwork waits, up to Options.Settle, until all gateways have reported and all links of
// restored trees are known again. Switches are not changed before it returns.
func (s *Service) awaitNetwork(ctx context.Context) {
	for _, x := range s.Channels.Items() {
		s.trees.restore(&x.Value)
	}
	settle, cancel := context.WithTimeout(ctx, s.Settle)
	defer cancel()
	s.Treatments.Await(settle)
	why := s.missing()
	for why != "" && tasks.Sleep(settle, settlePoll) == nil {
		why = s.missing()
	}
	if why != "" && ctx.Err() == nil {
		s.Log.Warn("start to manage channels before everything is known", "after", s.Settle, "unknown", why)
	}
	close(s.ready)
}

// missing returns what is not known yet of the state before the restart, or "".
func (s *Service) missing() string {
	for _, a := range s.sources.registry.List() {
		if !s.sources.hasReported(a.Name) {
			return "what ingress gateway " + a.Name + " has"
		}
		st := a.State()
		if _, _, err := s.place(&st); err != nil {
			return "where ingress gateway " + a.Name + " stands"
		}
	}
	for _, a := range s.egress.List() {
		if !s.viewers.hasReported(a.Name) {
			return "what egress gateway " + a.Name + " wants"
		}
		st := a.State()
		if _, _, err := s.place(&st); err != nil {
			return "where egress gateway " + a.Name + " stands"
		}
	}
	return s.trees.missingLink()
}
