package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/service/control"
)

type (
	ingressRegistry = agents.Registry[*gatewayapi.Ingress, gatewayapi.ChannelEvent, gatewayapi.ChannelState]
	ingressGateway  = agents.Agent[*gatewayapi.Ingress]
)

// toldMost bounds the channels of which an ingress gateway is listened to.
const toldMost = 2 * MaxChannels

// head is what an ingress gateway has.
type head struct {
	instance string // of its events; empty before the first
	told     map[string]gatewayapi.ChannelState
	// failed says why it does not have a channel as it should.
	failed map[string]error
	// refused are channels that it has had no room for.
	refused map[string]refused
	// measured is what channels have sent.
	measured map[string]*measured
}

// sources are the ingress gateways, and which has which channels.
type sources struct {
	*core
	registry *ingressRegistry
	loop     service.Loop

	mu    sync.Mutex       // guards what follows; a leaf, but for the locks of registries
	homes map[string]home  // by channel
	given map[string]given // by gateway
	heads map[string]*head // by gateway
	// telling are the gateways that are being told something.
	telling map[string]bool
}

func newSources(c *core) *sources {
	s := &sources{core: c, loop: service.NewLoop(), homes: map[string]home{}, given: map[string]given{}, heads: map[string]*head{}, telling: map[string]bool{}}
	s.registry = agents.New(agents.Options[*gatewayapi.Ingress, gatewayapi.ChannelEvent, gatewayapi.ChannelState]{
		Service: Name + "/ingress", Commands: "sluice cinema gateways ingress", Network: s.Network, Store: s.Store, Log: s.Log,
		Publish:     func(kind string, attrs any) { s.publish("ingress-"+kind, attrs) },
		Certificate: s.AgentTLS != nil, ControlSubnets: s.ControlSubnets,
		Dial: func(r agents.AgentRecord) (*gatewayapi.Ingress, error) {
			return gatewayapi.NewIngress(r.URL, s.AgentTLS, s.Dial)
		},
		Event: s.hear,
		Peers: func(a *ingressGateway) []*ingressGateway {
			if len(s.of(a.Name)) == 0 {
				return nil
			}
			return []*ingressGateway{nil}
		},
		Lost:    s.lose,
		Changed: s.changed,
	})
	return s
}

// changed has all looked at again that depends on where gateways are.
func (s *sources) changed() {
	s.Channels.Wake()
	s.loop.Wake()
}

// head is that of an ingress gateway. The lock is held.
func (s *sources) head(name string) *head {
	h := s.heads[name]
	if h == nil {
		h = &head{told: map[string]gatewayapi.ChannelState{}, failed: map[string]error{}, refused: map[string]refused{}, measured: map[string]*measured{}}
		s.heads[name] = h
	}
	return h
}

// hear takes in what an ingress gateway tells.
func (s *sources) hear(a *ingressGateway, e control.Event[gatewayapi.ChannelEvent, gatewayapi.ChannelState], before bool) {
	if !before {
		s.happened(a.Name, e.Ended)
	}
	if len(e.Live) == 0 && (e.Status.Sessions > 0 || len(e.Ended) > 0) {
		return // an event about what has happened alone
	}
	s.mu.Lock()
	h := s.head(a.Name)
	if h.instance != e.Instance { // another process may have room
		clear(h.refused)
	}
	h.instance = e.Instance
	clear(h.told)
	for _, c := range e.Live[:min(len(e.Live), toldMost)] {
		h.told[c.Name] = c
	}
	h.measure(time.Now())
	s.mu.Unlock()
	s.loop.Wake()
}

// happened tells of what has become of channels.
func (s *sources) happened(gateway string, all []gatewayapi.ChannelEvent) {
	for _, x := range all {
		if _, is := s.Channels.Item(x.Channel); !is {
			continue
		}
		attrs := map[string]any{"channel": x.Channel, "gateway": gateway, "detail": x.Detail}
		switch x.What {
		case "live":
			s.publish("channel.live", attrs)
		case "down":
			s.publish("channel.down", attrs)
		case "refused":
			s.publish("channel.refused", attrs)
		}
	}
}

// lose gives the channels of an ingress gateway to others.
func (s *sources) lose(a, _ *ingressGateway, cause error) {
	if errors.Is(cause, agents.ErrReplaced) {
		return // it has told what it has
	}
	s.mu.Lock()
	delete(s.heads, a.Name)
	for channel, x := range s.homes {
		if x.gateway == a.Name {
			s.put(channel, home{})
		}
	}
	s.mu.Unlock()
	s.changed()
}

// of lists the channels that an ingress gateway is to have.
func (s *sources) of(gateway string) (channels []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, x := range s.homes {
		if x.gateway == gateway {
			channels = append(channels, c)
		}
	}
	return channels
}

// find is where a channel comes into the network, and from which address.
func (s *sources) find(c *Channel) (p agents.Place, from netip.Addr, err error) {
	a, err := s.home(c)
	if err != nil {
		return p, from, err
	}
	st := a.State()
	p, from, err = s.place(&st)
	if err != nil {
		err = fmt.Errorf("ingress gateway %s %w", a.Name, err)
	}
	return p, from, err
}

// place is where a gateway stands, and with which address.
func (c *core) place(st *agents.State) (agents.Place, netip.Addr, error) {
	addr, ok := st.Addr(c.Media)
	if !ok {
		return agents.Place{}, addr, fmt.Errorf("has no data address of the family of %v", c.Media)
	}
	p, ok := st.Places[addr]
	if !ok {
		return p, addr, fmt.Errorf("has not been found in the network: nobody has been seen with %v", addr)
	}
	return p, addr, nil
}

// state is what the ingress gateway of a channel has told of it, and which that is.
func (s *sources) state(channel string) (gatewayapi.ChannelState, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.homes[channel].gateway
	if h := s.heads[at]; h != nil {
		return h.told[channel], at
	}
	return gatewayapi.ChannelState{}, at
}

// trouble is what the ingress gateway of a channel says to what it is told of it, or that it
// sends more than it declares; empty if nothing is wrong.
func (s *sources) trouble(channel string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.homes[channel].gateway
	h := s.heads[at]
	switch {
	case h == nil:
		return ""
	case h.failed[channel] != nil:
		return fmt.Sprintf("ingress gateway %s: %v", at, h.failed[channel])
	}
	return h.measured[channel].excess(h.told[channel].BitRate)
}

// forget ends that a channel has a gateway.
func (s *sources) forget(channel string) {
	s.mu.Lock()
	s.put(channel, home{})
	s.mu.Unlock()
	s.loop.Wake()
}

// heard says whether an ingress gateway has told what it has.
func (s *sources) heard(gateway string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heads[gateway] != nil && s.heads[gateway].instance != ""
}

// publicURL is where producers reach an ingress gateway; empty if that is not known.
func (s *sources) publicURL(ingress string) string {
	if a := s.registry.Get(ingress); a != nil {
		st := a.State()
		return publicURL(st.Status.PublicURL)
	}
	return ""
}
