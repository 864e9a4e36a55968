package cinema

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/control"
)

// capacityRefusalTTL is how long a channel is not offered again to a gateway that had no room
// for it.
const capacityRefusalTTL = 10 * time.Second

// assignment holds the ingress gateway to which a channel is assigned, and the bit rate
// reserved for it there.
type assignment struct {
	gateway string
	rate    uint64
}

// gatewayLoad holds what is assigned to a gateway.
type gatewayLoad struct {
	channels int
	rate     uint64 // of all its channels, in bit/s
}

// capacityRefusal records that a gateway had no room for a channel.
type capacityRefusal struct {
	at  time.Time
	why error
}

// assignedGateway returns the ingress gateway of a channel, and assigns one if there is none.
// It chooses the declared gateway; or the one that has the channel already; or, of the usable
// gateways whose own ports have room, the one with the least assigned bit rate. A gateway that
// drains keeps the channels that it has.
func (s *sources) assignedGateway(c *Channel) (*ingressGateway, error) {
	all := s.registry.List()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Ingress != "" {
		return s.declaredGateway(c, all)
	}
	if a := s.registry.Get(s.assignments[c.Name].gateway); a != nil && s.fits(c, a, all) == nil {
		s.assign(c, a)
		return a, nil
	}
	s.setAssignment(c.Name, assignment{})
	best, unfit := (*ingressGateway)(nil), []string{}
	for _, a := range all {
		_, has := s.ingress(a.Name).reported[c.Name]
		if why := s.unfitReason(c, a, all, has); why != "" {
			unfit = append(unfit, a.Name+" "+why)
			continue
		}
		if has {
			best = a
			break
		}
		if best == nil || s.loads[a.Name].rate < s.loads[best.Name].rate {
			best = a
		}
	}
	switch {
	case best != nil:
		s.assign(c, best)
		return best, nil
	case len(unfit) == 0:
		return nil, errors.New("there is no ingress gateway: start one, which announces itself, or add it by \"sluice cinema gateways ingress add\"")
	}
	return nil, fmt.Errorf("no ingress gateway can have it: %s", strings.Join(unfit, "; "))
}

// declaredGateway returns the ingress gateway that the channel's declaration names. s.mu is
// held.
func (s *sources) declaredGateway(c *Channel, all []*ingressGateway) (*ingressGateway, error) {
	a, err := s.registry.Get(c.Ingress), error(nil)
	if a == nil {
		err = kit.ErrUnknown
	} else {
		err = s.fits(c, a, all)
	}
	if err != nil {
		s.setAssignment(c.Name, assignment{})
		return nil, fmt.Errorf("ingress gateway %q: %w", c.Ingress, err)
	}
	s.assign(c, a)
	return a, nil
}

// unfitReason returns why a gateway cannot take a channel, or "" if it can. has says that the
// gateway has reported the channel already. s.mu is held.
func (s *sources) unfitReason(c *Channel, a *ingressGateway, all []*ingressGateway, has bool) string {
	st := a.State()
	if has { // draining refuses new channels only
		st.Draining, st.Status.Draining = false, false
	}
	if why := st.Unfit(s.Media); why != "" {
		return why
	}
	x, n := s.ingress(a.Name).refused[c.Name], s.loads[a.Name].channels
	switch most := st.Limit(); {
	case has: // there is room for it
	case time.Since(x.at) < capacityRefusalTTL:
		return fmt.Sprintf("refuses it: %v", x.why)
	case most > 0 && n >= most:
		return fmt.Sprintf("has %d channels, as many as it takes", n)
	}
	if err := s.fits(c, a, all); err != nil {
		return err.Error()
	}
	return ""
}

// fits returns an error if a gateway's own port has no room for a channel. s.mu is held.
func (s *sources) fits(c *Channel, a *ingressGateway, all []*ingressGateway) error {
	r := capacityAt(s.core, a, all)
	taken := uint64(0)
	for _, name := range r.gateways {
		taken += s.loads[name].rate
		if x := s.assignments[c.Name]; x.gateway == name {
			taken -= x.rate
		}
	}
	return r.check(taken, uint64(c.BitRate))
}

// assign assigns a channel to a gateway. s.mu is held.
func (s *sources) assign(c *Channel, a *ingressGateway) {
	before := s.assignments[c.Name]
	s.setAssignment(c.Name, assignment{a.Name, uint64(c.BitRate)})
	if before.gateway != a.Name {
		s.loop.Wake()
	}
}

// setAssignment records the gateway of a channel; the zero value removes it. s.mu is held.
func (s *sources) setAssignment(channel string, x assignment) {
	prev := s.assignments[channel]
	if delete(s.assignments, channel); prev.gateway != "" {
		s.setLoad(prev.gateway, gatewayLoad{s.loads[prev.gateway].channels - 1, s.loads[prev.gateway].rate - prev.rate})
	}
	if x.gateway != "" {
		s.assignments[channel] = x
		s.setLoad(x.gateway, gatewayLoad{s.loads[x.gateway].channels + 1, s.loads[x.gateway].rate + x.rate})
	}
}

// setLoad records what is assigned to a gateway. s.mu is held.
func (s *sources) setLoad(gateway string, x gatewayLoad) {
	if s.loads[gateway] = x; x.channels == 0 {
		delete(s.loads, gateway)
	}
}

// reassignIfFull withdraws a channel from a gateway whose error says that it has no room, so
// that another gateway is chosen. It reports whether it has done that. s.mu is held.
func (s *sources) reassignIfFull(channel, gateway string, err error) bool {
	h := s.ingress(gateway)
	code := control.CodeOf(err)
	if _, has := h.reported[channel]; has || code != control.CodeFull && code != control.CodeDraining {
		return false
	}
	x, ok := s.Channels.Item(channel)
	if !ok || x.Value.Ingress != "" || s.assignments[channel].gateway != gateway {
		return false
	}
	h.refused[channel] = capacityRefusal{time.Now(), err}
	s.setAssignment(channel, assignment{})
	return true
}
