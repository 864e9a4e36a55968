package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/service"
)

// home is the ingress gateway that is to have a channel, and what is kept for it there.
type home struct {
	gateway string
	rate    uint64
}

// home is the ingress gateway that has a channel, or is to have it from now on: the one that
// was declared, the one that has it, or of those that are fit and whose own port has room the
// one to which the least has been given.
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
		st := a.State()
		if why := st.Unfit(s.Media); why != "" {
			unfit = append(unfit, a.Name+" "+why)
			continue
		}
		if err := s.fits(c, a, all); err != nil {
			unfit = append(unfit, a.Name+" "+err.Error())
			continue
		}
		if _, has := s.head(a.Name).told[c.Name]; has {
			best = a
			break
		}
		if best == nil || s.given[a.Name] < s.given[best.Name] {
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

// fits says why a gateway's own port has no room for a channel, or nil. The lock is held.
func (s *sources) fits(c *Channel, a *ingressGateway, all []*ingressGateway) error {
	r := roomAt(s.core, a, all)
	taken := uint64(0)
	for _, name := range r.gateways {
		taken += s.given[name]
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
	if s.given[was.gateway] -= was.rate; s.given[was.gateway] == 0 {
		delete(s.given, was.gateway)
	}
	if delete(s.homes, channel); x.gateway != "" {
		s.homes[channel] = x
		s.given[x.gateway] += x.rate
	}
}
