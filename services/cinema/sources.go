package cinema

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

type (
	ingressRegistry = agents.Registry[*gatewayapi.Ingress, gatewayapi.ChannelEvent, gatewayapi.ChannelState]
	ingressGateway  = agents.Agent[*gatewayapi.Ingress]
)

// maxReported bounds the channels that are read from an ingress gateway's report.
const maxReported = 2 * MaxChannels

// ingressState is what the controller knows of an ingress gateway.
type ingressState struct {
	instance string // of the gateway's process; empty before its first event
	reported map[string]gatewayapi.ChannelState
	// failed holds the errors of the last requests, by channel.
	failed map[string]error
	// refused holds the channels for which the gateway had no room.
	refused map[string]capacityRefusal
	// rates holds the reported bit rates, by channel.
	rates map[string]*rateWindow
}

// sources manages the ingress gateways and the assignment of channels to them.
type sources struct {
	*core
	registry *ingressRegistry
	loop     kit.Loop

	mu          sync.Mutex               // guards the fields below; under it only locks of registries are taken
	assignments map[string]assignment    // by channel
	loads       map[string]gatewayLoad   // by gateway
	states      map[string]*ingressState // by gateway
	// syncing holds the gateways to which requests are being sent.
	syncing map[string]bool
}

func newSources(c *core) *sources {
	s := &sources{core: c, loop: kit.NewLoop(), assignments: map[string]assignment{}, loads: map[string]gatewayLoad{}, states: map[string]*ingressState{}, syncing: map[string]bool{}}
	s.registry = agents.New(agents.Options[*gatewayapi.Ingress, gatewayapi.ChannelEvent, gatewayapi.ChannelState]{
		Service: Name + "/ingress", Commands: "sluice cinema gateways ingress", Network: s.Network, Store: s.Store, Log: s.Log,
		Publish:     func(kind string, attrs any) { s.publish("ingress-"+kind, attrs) },
		Certificate: s.AgentTLS != nil, ControlSubnets: s.ControlSubnets,
		Dial: func(r agents.AgentRecord) (*gatewayapi.Ingress, error) {
			return gatewayapi.NewIngress(r.URL, s.AgentTLS, s.Dial)
		},
		Event: s.handleEvent,
		Peers: func(a *ingressGateway) []*ingressGateway {
			if len(s.channelsOf(a.Name)) == 0 {
				return nil
			}
			return []*ingressGateway{nil}
		},
		Lost:    s.gatewayLost,
		Changed: s.wake,
	})
	return s
}

// wake starts a new round over channels and ingress gateways.
func (s *sources) wake() {
	s.Channels.Wake()
	s.loop.Wake()
}

// ingress returns the state of an ingress gateway. s.mu is held.
func (s *sources) ingress(name string) *ingressState {
	h := s.states[name]
	if h == nil {
		h = &ingressState{reported: map[string]gatewayapi.ChannelState{}, failed: map[string]error{}, refused: map[string]capacityRefusal{}, rates: map[string]*rateWindow{}}
		s.states[name] = h
	}
	return h
}

// handleEvent processes an event of an ingress gateway.
func (s *sources) handleEvent(a *ingressGateway, e control.Event[gatewayapi.ChannelEvent, gatewayapi.ChannelState], before bool) {
	if !before {
		s.publishEvents(a.Name, e.Ended)
	}
	if len(e.Live) == 0 && (e.Status.Sessions > 0 || len(e.Ended) > 0) {
		return // the event only reports what happened, not the present state
	}
	s.mu.Lock()
	h := s.ingress(a.Name)
	if h.instance != e.Instance { // a new process may have room
		clear(h.refused)
	}
	h.instance = e.Instance
	clear(h.reported)
	for _, c := range e.Live[:min(len(e.Live), maxReported)] {
		h.reported[c.Name] = c
	}
	h.recordRates(time.Now())
	s.mu.Unlock()
	s.loop.Wake()
}

// publishEvents publishes what has happened to channels.
func (s *sources) publishEvents(gateway string, all []gatewayapi.ChannelEvent) {
	for _, x := range all {
		if _, ok := s.Channels.Item(x.Channel); !ok {
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

// gatewayLost releases the channels of an ingress gateway, so that others get them.
func (s *sources) gatewayLost(a, _ *ingressGateway, cause error) {
	if errors.Is(cause, agents.ErrReplaced) {
		return // the new gateway has reported its channels
	}
	s.mu.Lock()
	delete(s.states, a.Name)
	for channel, x := range s.assignments {
		if x.gateway == a.Name {
			s.setAssignment(channel, assignment{})
		}
	}
	s.mu.Unlock()
	s.wake()
}

// channelsOf lists the channels that are assigned to an ingress gateway.
func (s *sources) channelsOf(gateway string) (channels []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, x := range s.assignments {
		if x.gateway == gateway {
			channels = append(channels, c)
		}
	}
	return channels
}

// locate returns where a channel enters the network, and its source address.
func (s *sources) locate(c *Channel) (p agents.Place, from netip.Addr, err error) {
	a, err := s.assignedGateway(c)
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

// place returns where a gateway is attached, and its data address.
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

// channelState returns what the ingress gateway of a channel has reported of it, and the
// gateway's name.
func (s *sources) channelState(channel string) (gatewayapi.ChannelState, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.assignments[channel].gateway
	if h := s.states[at]; h != nil {
		return h.reported[channel], at
	}
	return gatewayapi.ChannelState{}, at
}

// problem returns the error of the last request about a channel to its ingress gateway, or that
// the channel exceeds its declared rate; "" if neither holds.
func (s *sources) problem(channel string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.assignments[channel].gateway
	h := s.states[at]
	switch {
	case h == nil:
		return ""
	case h.failed[channel] != nil:
		return fmt.Sprintf("ingress gateway %s: %v", at, h.failed[channel])
	}
	return h.rates[channel].excess(h.reported[channel].BitRate)
}

// unassign removes the assignment of a channel.
func (s *sources) unassign(channel string) {
	s.mu.Lock()
	s.setAssignment(channel, assignment{})
	s.mu.Unlock()
	s.loop.Wake()
}

// hasReported reports whether an ingress gateway has sent its first event.
func (s *sources) hasReported(gateway string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[gateway] != nil && s.states[gateway].instance != ""
}

// publicURL returns the URL at which producers reach an ingress gateway, or "" if it is not
// known.
func (s *sources) publicURL(ingress string) string {
	if a := s.registry.Get(ingress); a != nil {
		st := a.State()
		return publicURL(st.Status.PublicURL)
	}
	return ""
}
