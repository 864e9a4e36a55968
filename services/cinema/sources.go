package cinema

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/units"
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

	mu          sync.Mutex               // guards the fields below; its holder may take only locks of registries
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

// wake makes all channels and ingress gateways be reconciled again.
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
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ingress(a.Name).apply(e.Ended)
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

// apply updates the reported states by what has happened since, so that they agree with the published
// events before the next report.
func (h *ingressState) apply(all []gatewayapi.ChannelEvent) {
	for _, x := range all {
		c, known := h.reported[x.Channel]
		if !known || x.At.Before(c.Since) {
			continue
		}
		switch x.What {
		case "live":
			c.OnAir, c.Since = gatewayapi.OnAirLive, x.At
		case "down":
			c.OnAir, c.Since, c.Measured, c.Media = gatewayapi.OnAirDown, x.At, 0, ""
		}
		h.reported[x.Channel] = c
	}
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

// problem returns the error of the last request about a channel to its ingress gateway, what that
// gateway reports to be wrong with it, or that the channel exceeds its declared rate; "" if none
// of these holds.
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
	if reported := h.reported[channel].Error; reported != "" {
		return fmt.Sprintf("ingress gateway %s: %s", at, reported)
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

// publicURL returns the URL that a gateway has reported if a page may link to it, and ""
// otherwise.
func publicURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || len(text) > 256 {
		return ""
	}
	return text
}

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

// unfitReason returns why a gateway cannot take a channel, or "" if it can. has reports whether the
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
	case has: // the gateway has the channel, and so needs no room for another one
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

const (
	// rateWindowLength is how long a channel may exceed its declared rate before this is
	// reported.
	rateWindowLength = 10 * time.Second
	// minSampleInterval is the least time between two samples.
	minSampleInterval = 500 * time.Millisecond
	// headroomPercent is by how many percent a channel may exceed its declared rate, because of
	// headers.
	headroomPercent = 10
)

// rateWindow holds the bit rates that an ingress gateway has reported for a channel in the last
// rateWindowLength.
type rateWindow struct {
	samples []rateSample
	// full reports whether the samples cover the whole window.
	full bool
}

type rateSample struct {
	at   time.Time
	rate units.Rate
}

// add adds a sample, and drops those that have left the window.
func (m *rateWindow) add(rate units.Rate, now time.Time) {
	if n := len(m.samples); n > 0 && now.Sub(m.samples[n-1].at) < minSampleInterval {
		return
	}
	m.samples = append(m.samples, rateSample{now, rate})
	for now.Sub(m.samples[0].at) >= rateWindowLength {
		m.samples = m.samples[1:]
		m.full = len(m.samples) > 1 // with one sample, nothing was reported for a whole window
	}
}

// excess returns a message if the channel sends more than it declares, and "" otherwise.
func (m *rateWindow) excess(declared units.Rate) string {
	if m == nil || !m.full || len(m.samples) == 0 {
		return ""
	}
	sum := units.Rate(0)
	for _, x := range m.samples {
		sum += x.rate / units.Rate(len(m.samples))
	}
	if sum <= declared+declared*headroomPercent/100 {
		return ""
	}
	return fmt.Sprintf("it sends %v on average of the last %v, and %v are declared and kept for it: declare more, or have its producer send less", sum, rateWindowLength, declared)
}

// recordRates adds a sample for each live channel that the gateway has reported.
func (h *ingressState) recordRates(now time.Time) {
	maps.DeleteFunc(h.rates, func(channel string, _ *rateWindow) bool { return h.reported[channel].OnAir != gatewayapi.OnAirLive })
	for name, c := range h.reported {
		if c.OnAir != gatewayapi.OnAirLive {
			continue
		}
		if h.rates[name] == nil {
			h.rates[name] = &rateWindow{}
		}
		h.rates[name].add(c.Measured, now)
	}
}
