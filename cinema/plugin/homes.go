package plugin

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/service/control"
)

// refusedFor is for how long a channel is not given to a gateway that has had no room for it.
const refusedFor = 10 * time.Second

// home is the ingress gateway that is to have a channel, and what is kept for it there.
type home struct {
	gateway string
	rate    uint64
}

// given is what a gateway is to have.
type given struct {
	channels int
	rate     uint64 // of all, in bit/s
}

// refused is that a gateway has had no room for a channel.
type refused struct {
	at  time.Time
	why error
}

// home is the ingress gateway that has a channel, or is to have it from now on: the one that
// was declared, the one that has it, or of those that are fit, and have room, as their own ports
// have, the one to which the least has been given. One that drains keeps what it has.
func (s *sources) home(c *Channel) (*ingressGateway, error) {
	all := s.registry.List()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Ingress != "" {
		return s.declared(c, all)
	}
	if a := s.registry.Get(s.homes[c.Name].gateway); a != nil && s.fits(c, a, all) == nil {
		s.give(c, a)
		return a, nil
	}
	s.put(c.Name, home{})
	best, unfit := (*ingressGateway)(nil), []string{}
	for _, a := range all {
		_, has := s.head(a.Name).told[c.Name]
		if why := s.unfit(c, a, all, has); why != "" {
			unfit = append(unfit, a.Name+" "+why)
			continue
		}
		if has {
			best = a
			break
		}
		if best == nil || s.given[a.Name].rate < s.given[best.Name].rate {
			best = a
		}
	}
	switch {
	case best != nil:
		s.give(c, best)
		return best, nil
	case len(unfit) == 0:
		return nil, errors.New("there is no ingress gateway: start one, which announces itself, or add it by \"sluice cinema gateways ingress add\"")
	}
	return nil, fmt.Errorf("no ingress gateway can have it: %s", strings.Join(unfit, "; "))
}

// declared is the ingress gateway that a channel was declared to have. The lock is held.
func (s *sources) declared(c *Channel, all []*ingressGateway) (*ingressGateway, error) {
	a, err := s.registry.Get(c.Ingress), error(nil)
	if a == nil {
		err = service.ErrUnknown
	} else {
		err = s.fits(c, a, all)
	}
	if err != nil {
		s.put(c.Name, home{})
		return nil, fmt.Errorf("ingress gateway %q: %w", c.Ingress, err)
	}
	s.give(c, a)
	return a, nil
}

// unfit says why a gateway cannot have a channel, which it may have told of; empty if it can.
// The lock is held.
func (s *sources) unfit(c *Channel, a *ingressGateway, all []*ingressGateway, has bool) string {
	st := a.State()
	if has { // what drains takes nothing new, and this is not
		st.Draining, st.Status.Draining = false, false
	}
	if why := st.Unfit(s.Media); why != "" {
		return why
	}
	x, n := s.head(a.Name).refused[c.Name], s.given[a.Name].channels
	switch most := st.Limit(); {
	case has: // there is room for it
	case time.Since(x.at) < refusedFor:
		return fmt.Sprintf("refuses it: %v", x.why)
	case most > 0 && n >= most:
		return fmt.Sprintf("has %d channels, as many as it takes", n)
	}
	if err := s.fits(c, a, all); err != nil {
		return err.Error()
	}
	return ""
}

// fits says why a gateway's own port has no room for a channel, or nil. The lock is held.
func (s *sources) fits(c *Channel, a *ingressGateway, all []*ingressGateway) error {
	r := roomAt(s.core, a, all)
	taken := uint64(0)
	for _, name := range r.gateways {
		taken += s.given[name].rate
		if x := s.homes[c.Name]; x.gateway == name {
			taken -= x.rate
		}
	}
	return r.lacks(taken, uint64(c.BitRate))
}

// give has a gateway have a channel. The lock is held.
func (s *sources) give(c *Channel, a *ingressGateway) {
	before := s.homes[c.Name]
	s.put(c.Name, home{a.Name, uint64(c.BitRate)})
	if before.gateway != a.Name {
		s.loop.Wake()
	}
}

// put notes which gateway is to have a channel; the zero value is none. The lock is held.
func (s *sources) put(channel string, x home) {
	was := s.homes[channel]
	if delete(s.homes, channel); was.gateway != "" {
		s.count(was.gateway, given{s.given[was.gateway].channels - 1, s.given[was.gateway].rate - was.rate})
	}
	if x.gateway != "" {
		s.homes[channel] = x
		s.count(x.gateway, given{s.given[x.gateway].channels + 1, s.given[x.gateway].rate + x.rate})
	}
}

// count notes what a gateway is to have. The lock is held.
func (s *sources) count(gateway string, x given) {
	if s.given[gateway] = x; x.channels == 0 {
		delete(s.given, gateway)
	}
}

// turnedAway has a channel go to another gateway than one that says that it has no room for it,
// and reports whether it says that. The lock is held.
func (s *sources) turnedAway(channel, gateway string, err error) bool {
	h := s.head(gateway)
	code := control.CodeOf(err)
	if _, has := h.told[channel]; has || code != control.CodeFull && code != control.CodeDraining {
		return false
	}
	x, is := s.Channels.Item(channel)
	if !is || x.Value.Ingress != "" || s.homes[channel].gateway != gateway {
		return false
	}
	h.refused[channel] = refused{time.Now(), err}
	s.put(channel, home{})
	return true
}
