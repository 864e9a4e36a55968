package plugin

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/service/agents"
)

const (
	// tellTimeout bounds one request to an ingress gateway, tellRound all that one is told in
	// a row, and dropMost how many channels that it should not have.
	tellTimeout = 3 * time.Second
	tellRound   = 10 * time.Second
	dropMost    = 100
	// tellEvery is how often ingress gateways are compared with what they should have.
	tellEvery    = time.Second
	tellDebounce = 5 * time.Millisecond
)

// run has ingress gateways have what they should, until ctx ends. What they have from before
// a restart is left to them until it is known what they should have. Each is told by itself,
// so that none that is slow keeps others waiting.
func (s *sources) run(ctx context.Context) {
	select {
	case <-s.started:
	case <-ctx.Done():
		return
	}
	s.loop.Run(ctx, tellDebounce, tellEvery, func(context.Context) {
		for _, x := range s.Channels.Items() {
			_, _ = s.home(&x.Value) // that it has none is its trouble
		}
		for _, a := range s.registry.List() {
			if s.begin(a) && !s.tasks.Start(func(ctx context.Context) { s.tell(ctx, a); s.done(a) }) {
				s.done(a)
			}
		}
	})
}

// begin says whether a gateway is to be told something now: not while it is, nor before it has
// told what it has. done says that that is over.
func (s *sources) begin(a *ingressGateway) bool {
	up := a.State().Liveness == agents.Up
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.heads[a.Name]
	if h == nil || h.instance == "" || !up || s.telling[a.Name] {
		return false
	}
	s.telling[a.Name] = true
	return true
}

func (s *sources) done(a *ingressGateway) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.telling, a.Name)
}

// tell brings one ingress gateway in step.
func (s *sources) tell(ctx context.Context, a *ingressGateway) {
	ctx, cancel := context.WithTimeout(ctx, tellRound)
	defer cancel()
	have, drop := s.differing(a)
	for _, name := range drop[:min(len(drop), dropMost)] {
		s.told(ctx, a, name, func(ctx context.Context) error { return a.Client.Drop(ctx, name) })
	}
	for _, c := range have {
		s.told(ctx, a, c.Name, func(ctx context.Context) error { return a.Client.Have(ctx, c) })
	}
}

// differing is which channels a gateway does not have as it should, and which it should not
// have. One that no other is to have stays: its producer would be thrown off for nothing.
func (s *sources) differing(a *ingressGateway) (have []gatewayapi.Channel, drop []string) {
	wanted := map[string]gatewayapi.Channel{}
	for _, name := range s.of(a.Name) {
		if x, is := s.Channels.Item(name); is {
			wanted[name] = x.Value.atGateway(s.Media)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.head(a.Name)
	maps.DeleteFunc(h.failed, func(name string, _ error) bool { _, is := wanted[name]; return !is })
	maps.DeleteFunc(h.refused, func(_ string, x refused) bool { return time.Since(x.at) >= refusedFor })
	for name, told := range h.told {
		if want, is := wanted[name]; is && told.Channel == want {
			delete(wanted, name)
			delete(h.failed, name)
		} else if !is && !s.stays(name, a.Name) {
			drop = append(drop, name)
		}
	}
	slices.Sort(drop)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		have = append(have, wanted[name])
	}
	return have, drop
}

// stays says whether a gateway keeps a channel that it has: one that no other is to have. The
// lock is held.
func (s *sources) stays(channel, gateway string) bool {
	x, is := s.Channels.Item(channel)
	at := s.homes[channel].gateway
	return is && (at == gateway || at == "" && (x.Value.Ingress == "" || x.Value.Ingress == gateway))
}

// told tells an ingress gateway something about a channel, and notes what it says to it.
func (s *sources) told(ctx context.Context, a *ingressGateway, channel string, ask func(context.Context) error) {
	if ctx.Err() != nil {
		return // the rest is told in the next round
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	err := ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.head(a.Name)
	switch {
	case err == nil:
		delete(h.failed, channel)
		return
	case s.turnedAway(channel, a.Name, err):
		s.changed() // another may have room
		return
	}
	h.failed[channel] = err
	s.strange.Warn(s.Log, "an ingress gateway does not do what it is told; it is told again", "gateway", a.Name, "channel", channel, "error", err)
}
