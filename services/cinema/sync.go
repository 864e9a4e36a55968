package cinema

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	// requestTimeout bounds one request to an ingress gateway, syncTimeout one round of
	// requests, and maxDrops how many channels are dropped in a round.
	requestTimeout = 3 * time.Second
	syncTimeout    = 10 * time.Second
	maxDrops       = 100
	// syncInterval is how often ingress gateways are compared with their assignments.
	syncInterval = time.Second
	syncDebounce = 5 * time.Millisecond
)

// run keeps ingress gateways in step with their assignments until ctx ends. After a restart it
// leaves gateways as they are until all of them have reported. Each gateway has a task of its
// own, so that a slow one does not delay others.
func (s *sources) run(ctx context.Context) {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return
	}
	s.loop.Run(ctx, syncDebounce, syncInterval, func(context.Context) {
		for _, x := range s.Channels.Items() {
			_, _ = s.assignedGateway(&x.Value) // the channel's condition says if it has none
		}
		for _, a := range s.registry.List() {
			if s.beginSync(a) && !s.tasks.Start(func(ctx context.Context) { s.sync(ctx, a); s.endSync(a) }) {
				s.endSync(a)
			}
		}
	})
}

// beginSync reports whether requests may be sent to a gateway now. They may not while the gateway is
// down, before its first report, or while other requests are being sent to it. If they may, the caller
// calls endSync when it has sent them.
func (s *sources) beginSync(a *ingressGateway) bool {
	up := a.State().Liveness == agents.Up
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.states[a.Name]
	if h == nil || h.instance == "" || !up || s.syncing[a.Name] {
		return false
	}
	s.syncing[a.Name] = true
	return true
}

func (s *sources) endSync(a *ingressGateway) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.syncing, a.Name)
}

// sync requests one ingress gateway to drop channels, at most maxDrops of them, and to take the
// channels that it lacks or has with another specification.
func (s *sources) sync(ctx context.Context, a *ingressGateway) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	have, drop := s.diff(a)
	for _, name := range drop[:min(len(drop), maxDrops)] {
		s.send(ctx, a, name, func(ctx context.Context) error { return a.Client.DeleteChannel(ctx, name) })
	}
	for _, c := range have {
		s.send(ctx, a, c.Name, func(ctx context.Context) error { return a.Client.SetChannel(ctx, c) })
	}
}

// diff returns the channels that a gateway must be given, and those that it must drop. A
// channel that no other gateway will take stays, because a drop would disconnect its producer
// for nothing.
func (s *sources) diff(a *ingressGateway) (have []gatewayapi.Channel, drop []string) {
	wanted := map[string]gatewayapi.Channel{}
	for _, name := range s.channelsOf(a.Name) {
		if x, ok := s.Channels.Item(name); ok {
			wanted[name] = x.Value.forGateway(s.Media)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.ingress(a.Name)
	maps.DeleteFunc(h.failed, func(name string, _ error) bool { _, ok := wanted[name]; return !ok })
	maps.DeleteFunc(h.refused, func(_ string, x capacityRefusal) bool { return time.Since(x.at) >= capacityRefusalTTL })
	for name, told := range h.reported {
		if want, ok := wanted[name]; ok && told.Channel == want {
			delete(wanted, name)
			delete(h.failed, name)
		} else if !ok && !s.keeps(name, a.Name) {
			drop = append(drop, name)
		}
	}
	slices.Sort(drop)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		have = append(have, wanted[name])
	}
	return have, drop
}

// keeps reports whether a gateway keeps a channel that it has, because no other gateway is
// assigned to it. s.mu is held.
func (s *sources) keeps(channel, gateway string) bool {
	x, ok := s.Channels.Item(channel)
	at := s.assignments[channel].gateway
	return ok && (at == gateway || at == "" && (x.Value.Ingress == "" || x.Value.Ingress == gateway))
}

// send sends a request about a channel to an ingress gateway, and records its error.
func (s *sources) send(ctx context.Context, a *ingressGateway, channel string, ask func(context.Context) error) {
	if ctx.Err() != nil {
		return // the next round sends the rest
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.ingress(a.Name)
	switch {
	case err == nil:
		delete(h.failed, channel)
		return
	case s.reassignIfFull(channel, a.Name, err):
		s.wake() // another gateway may have room
		return
	}
	h.failed[channel] = err
	s.warnLimiter.Warn(s.Log, "an ingress gateway has refused a request; will try again", "gateway", a.Name, "channel", channel, "error", err)
}
