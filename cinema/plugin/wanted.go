package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/service"
)

const (
	// changeTimeout bounds one change of a viewer.
	changeTimeout = 2 * time.Second
	// burstTimeout bounds what is asked of an ingress gateway for it, maxBursts how many are
	// asked for at once.
	burstTimeout = time.Second
	maxBursts    = 256
	// burstEvery is the least time between two bursts of what a viewer gets already.
	burstEvery = 200 * time.Millisecond
)

// refusal is what stands against a change of a viewer: the field of the request, its value,
// and what would be right.
type refusal struct {
	field string
	value any
	want  string
}

// Error implements error.
func (r *refusal) Error() string { return fmt.Sprintf("%s %v: want %s", r.field, r.value, r.want) }

// want makes a change of a viewer, and returns when the switches have it, or why they have
// not. What is refused has changed nothing.
func (s *Service) want(ctx context.Context, w *gatewayapi.Wanted) (*gatewayapi.Granted, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	gateway, channels, err := s.check(ctx, w)
	if err != nil {
		return nil, err
	}
	door := s.gates.of(w.Gateway)
	if !door.enter() {
		return nil, api.TooMany("body.gateway", w.Gateway, fmt.Sprintf("at most %d changes of one gateway at once", maxAtOnce))
	}
	defer door.leave()
	select {
	case <-s.started:
	case <-ctx.Done():
		return nil, api.Unavailable("the controller has just been started, and waits for gateways to tell of their viewers: ask again in a moment")
	}
	if err := s.passwords(ctx, door, w, channels); err != nil {
		return nil, err
	}
	all, err := s.viewers.want(w, s.bounds(gateway), time.Now())
	if len(all) == 0 || err != nil {
		return &gatewayapi.Granted{Channels: []gatewayapi.Source{}}, answer(err)
	}
	if err := s.make(ctx, all); err != nil {
		return nil, err
	}
	out := s.granted(channels)
	added, _ := all[0].touched()
	if len(added) == 0 && w.Burst && s.viewers.again(w, time.Now()) {
		added = w.Channels[:1] // something of it was lost
	}
	s.burst(gateway, w, added)
	s.metrics.change(all[0], time.Since(began))
	return out, nil
}

// answer makes a problem document of a refusal.
func answer(err error) error {
	if r, is := errors.AsType[*refusal](err); is {
		return api.Conflict("body."+r.field, r.value, r.want)
	}
	return err
}

// check says what is wrong with a request, beyond what its tags say.
func (s *Service) check(ctx context.Context, w *gatewayapi.Wanted) (*egressGateway, []Channel, error) {
	var faults service.Faults
	name, isCert := strings.CutPrefix(api.Identity(ctx), "certificate:")
	if isCert && (name != w.Gateway || api.Role(ctx) != pki.RoleAgent) {
		return nil, nil, api.Forbidden("body.gateway", w.Gateway, "the name in the gateway's certificate, "+name)
	}
	gateway := s.egress.Get(w.Gateway)
	faults.Check(gateway != nil, "gateway", w.Gateway, "the name of an egress gateway that the controller has: it announces itself first")
	faults.Check(viewerID.MatchString(w.Viewer), "viewer", w.Viewer, "32 hex digits")
	faults.Check(w.Port >= leastPort, "port", w.Port, "a port from %d to 65535", leastPort)
	faults.Check(len(w.Channels) <= gatewayapi.MaxWatched, "channels", len(w.Channels), "at most %d channels, two while a viewer changes", gatewayapi.MaxWatched)
	faults.Check(len(w.Password) <= maxPassword, "password", "(hidden)", "at most %d bytes", maxPassword)
	var channels []Channel
	for i, c := range w.Channels[:min(len(w.Channels), gatewayapi.MaxWatched)] {
		x, is := s.Channels.Item(c)
		field := fmt.Sprintf("channels[%d]", i)
		faults.Check(is, field, c, "the name of a channel: the lineup has them")
		faults.Check(!slices.Contains(w.Channels[:i], c), field, c, "each channel once")
		channels = append(channels, x.Value)
	}
	return gateway, channels, service.Refuse(faults)
}

// passwords says whether a viewer may have the channels that are new to it.
func (s *Service) passwords(ctx context.Context, door *door, w *gatewayapi.Wanted, channels []Channel) error {
	had := s.viewers.current(w)
	for i := range channels {
		c := &channels[i]
		if c.ViewHash == "" || slices.Contains(had, c.Name) {
			continue
		}
		switch err := door.password(ctx, s.gates, w.Viewer, c.ViewHash, w.Password); {
		case errors.Is(err, errWrong):
			s.metrics.wrong.Inc()
			return api.Forbidden("body.password", "(hidden)", "the password of channel "+c.Name)
		case errors.Is(err, errTooOften):
			return api.TooMany("body.password", "(hidden)", err.Error())
		case err != nil:
			return api.Unavailable("the password was not looked at in time: %v", err)
		}
	}
	return nil
}

// make has the switches follow changes. What a viewer cannot get is taken back.
func (s *Service) make(ctx context.Context, all []changed) error {
	x := all[0]
	added, removed := x.touched()
	for _, other := range all[1:] {
		removed = append(removed, other.before...)
		s.tellViewer(other)
	}
	slices.Sort(removed)
	removed = slices.Compact(removed)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() { _ = s.reconcile(ctx, removed) }) // the channel's trouble says why not
	err := s.reconcile(ctx, added)
	if err == nil && len(added) > 0 {
		err = s.connected(x.gateway)
	}
	if err != nil {
		s.metrics.failed.Inc()
		return api.Unavailable("the switches do not have the rules yet: %v", err)
	}
	for _, c := range added {
		if err := s.ways.refusedTo(c, watching{x.gateway, x.port}); err != nil {
			s.viewers.back(x)
			s.metrics.failed.Inc()
			_ = s.reconcile(ctx, added)
			return api.Conflict("body.channels", c, "a channel that gets there: "+err.Error())
		}
	}
	s.viewers.sure(x)
	s.tellViewer(x)
	return nil
}

// connected says that the switch before a gateway is not there to confirm anything, or nil. It
// has what it had, and gets the rest when it connects.
func (s *Service) connected(gateway string) error {
	a := s.egress.Get(gateway)
	if a == nil {
		return nil
	}
	st := a.State()
	if p, _, err := s.place(&st); err == nil && !s.Network.Topology().Has(p.At.Switch) {
		return fmt.Errorf("switch %v before gateway %s: %w", p.At.Switch, gateway, network.ErrSwitchDown)
	}
	return nil
}

// reconcile has the network follow several channels at once.
func (s *Service) reconcile(ctx context.Context, channels []string) error {
	var all errgroup.Group
	for _, c := range channels {
		all.Go(func() error { return s.Channels.Reconcile(ctx, c) })
	}
	return all.Wait()
}

// granted says where channels come from.
func (s *Service) granted(channels []Channel) *gatewayapi.Granted {
	out := &gatewayapi.Granted{Channels: []gatewayapi.Source{}}
	for i := range channels {
		c := &channels[i]
		if _, from, err := s.sources.find(c); err == nil {
			out.Channels = append(out.Channels, gatewayapi.Source{Channel: c.Name, From: netip.AddrPortFrom(from, gatewayapi.SourcePort(c.Number))})
		}
	}
	return out
}

// burst asks the ingress gateways of channels for the packets since the last key frame. It
// does not wait for what they say: without them, the viewer waits for the next key frame.
func (s *Service) burst(gateway *egressGateway, w *gatewayapi.Wanted, channels []string) {
	st := gateway.State()
	addr, ok := st.Addr(s.Media)
	if !w.Burst || !ok {
		return
	}
	for _, channel := range channels {
		x, is := s.Channels.Item(channel)
		if !is {
			continue
		}
		a, err := s.sources.home(&x.Value)
		if err != nil || !s.gates.burst() {
			s.metrics.bursts.WithLabelValues("left-out").Inc()
			continue
		}
		to := gatewayapi.Burst{To: netip.AddrPortFrom(addr, w.Port)}
		started := s.tasks.Start(func(ctx context.Context) {
			defer s.gates.burstDone()
			ctx, cancel := context.WithTimeout(ctx, burstTimeout)
			defer cancel()
			if err := a.Client.Burst(ctx, channel, to); err != nil {
				s.metrics.bursts.WithLabelValues("failed").Inc()
				s.strange.Info(s.Log, "an ingress gateway sends no burst", "gateway", a.Name, "channel", channel, "error", err)
				return
			}
			s.metrics.bursts.WithLabelValues("sent").Inc()
		})
		if !started {
			s.gates.burstDone()
		}
	}
}
