package cinema

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// burstTimeout bounds a burst request to an ingress gateway.
const burstTimeout = time.Second

// changeViewer changes a viewer's channels, and returns when the switches have confirmed the change.
// A request that is refused changes nothing.
func (s *Service) changeViewer(ctx context.Context, w *gatewayapi.Wanted) (*gatewayapi.Granted, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	gateway, channels, err := s.check(ctx, w)
	if err != nil {
		return nil, err
	}
	admission := s.admission.gateway(w.Gateway)
	if !admission.acquire() {
		return nil, api.TooMany("body.gateway", w.Gateway, fmt.Sprintf("at most %d changes of one gateway at once", maxPendingChanges))
	}
	defer admission.release()
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil, api.Unavailable("the controller has just been started, and waits for gateways to tell of their viewers: ask again in a moment")
	}
	if err := s.checkPasswords(ctx, admission, w, channels); err != nil {
		return nil, err
	}
	all, err := s.viewers.request(w, s.bounds(gateway), time.Now())
	if len(all) == 0 || err != nil {
		return &gatewayapi.Granted{Channels: []gatewayapi.Source{}}, problemOf(err)
	}
	if err := s.applyChanges(ctx, all); err != nil {
		return nil, err
	}
	out := s.granted(channels)
	out.Number = all[0].grant
	added, _ := all[0].diff()
	if len(added) == 0 && w.Burst && s.viewers.allowRepeatedBurst(w, time.Now()) {
		added = w.Channels[:1] // the viewer has lost packets of it
	}
	s.requestBursts(gateway, w, added)
	s.metrics.changes.WithLabelValues(all[0].kind()).Observe(time.Since(began).Seconds())
	return out, nil
}

// problemOf converts a refusal to an error of the API.
func problemOf(err error) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		return api.Conflict("body."+r.field, r.value, r.want)
	}
	return err
}

// check validates a request beyond what its struct tags do. It returns the request's gateway and
// channels.
func (s *Service) check(ctx context.Context, w *gatewayapi.Wanted) (*egressGateway, []Channel, error) {
	var faults kit.Faults
	name, isCert := strings.CutPrefix(api.Identity(ctx), "certificate:")
	if isCert && (name != w.Gateway || api.Role(ctx) != pki.RoleAgent) {
		return nil, nil, api.Forbidden("body.gateway", w.Gateway, "the name in the gateway's certificate, "+name)
	}
	gateway := s.egress.Get(w.Gateway)
	faults.Check(gateway != nil, "gateway", w.Gateway, "the name of an egress gateway that the controller has: it announces itself first")
	faults.Check(viewerID.MatchString(w.Viewer), "viewer", w.Viewer, "32 hex digits")
	faults.Check(w.Port >= minPort, "port", w.Port, "a port from %d to 65535", minPort)
	faults.Check(len(w.Channels) <= gatewayapi.MaxWatched, "channels", len(w.Channels), "at most %d channels, two while a viewer changes", gatewayapi.MaxWatched)
	faults.Check(len(w.Password) <= maxPassword, "password", "(hidden)", "at most %d bytes", maxPassword)
	var channels []Channel
	for i, c := range w.Channels[:min(len(w.Channels), gatewayapi.MaxWatched)] {
		x, ok := s.Channels.Item(c)
		field := fmt.Sprintf("channels[%d]", i)
		faults.Check(ok, field, c, "the name of a channel: the lineup has them")
		faults.Check(!slices.Contains(w.Channels[:i], c), field, c, "each channel once")
		channels = append(channels, x.Value)
	}
	return gateway, channels, kit.Refuse(faults)
}

// checkPasswords returns an error unless the viewer may watch the channels that are new to it.
func (s *Service) checkPasswords(ctx context.Context, admission *gatewayAdmission, w *gatewayapi.Wanted, channels []Channel) error {
	had := s.viewers.channelsOf(w)
	for i := range channels {
		c := &channels[i]
		if c.ViewHash == "" || slices.Contains(had, c.Name) {
			continue
		}
		switch err := admission.checkPassword(ctx, s.admission, w.Viewer, c.ViewHash, w.Password); {
		case errors.Is(err, errWrongPassword):
			s.metrics.wrong.Inc()
			return api.Forbidden("body.password", "(hidden)", "the password of channel "+c.Name)
		case errors.Is(err, errTooManyFailures):
			return api.TooMany("body.password", "(hidden)", err.Error())
		case err != nil:
			return api.Unavailable("the password was not looked at in time: %v", err)
		}
	}
	return nil
}

// applyChanges writes the rules of changes to the switches. all[0] is the requested change, which is
// undone if the network refuses it. The others remove viewers that had the same port before.
func (s *Service) applyChanges(ctx context.Context, all []viewerChange) error {
	x := all[0]
	added, removed := x.diff()
	for _, other := range all[1:] {
		removed = append(removed, other.before...)
		s.publishViewer(other)
	}
	slices.Sort(removed)
	removed = slices.Compact(removed)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() { _ = s.reconcile(ctx, removed) }) // the channel's condition has the error
	errs := s.reconcile(ctx, added)
	if err := unwritten(errs); err != nil {
		s.metrics.failed.Inc()
		return api.Unavailable("the switches do not have the rules yet: %v", err)
	}
	for i, c := range added {
		if err := s.refusalAt(errs[i], endpoint{x.gateway, x.port}); err != nil {
			s.viewers.rollback(x)
			s.metrics.failed.Inc()
			_ = s.reconcile(ctx, added)
			return api.Conflict("body.channels", c, "a channel that gets there: "+err.Error())
		}
	}
	if len(added) > 0 {
		if err := s.checkSwitch(x.gateway); err != nil {
			s.metrics.failed.Inc()
			return api.Unavailable("the switches do not have the rules yet: %v", err)
		}
	}
	s.viewers.confirm(x)
	s.publishViewer(x)
	return nil
}

// checkSwitch returns an error if the switch of a gateway is not connected, and so cannot
// confirm anything. Such a switch keeps its rules, and gets the new ones when it connects.
func (s *Service) checkSwitch(gateway string) error {
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

// reconcile reconciles several channels at the same time, and returns their errors in order.
func (s *Service) reconcile(ctx context.Context, channels []string) []error {
	errs := make([]error, len(channels))
	var all sync.WaitGroup
	for i, c := range channels {
		all.Go(func() { errs[i] = s.Channels.Reconcile(ctx, c) })
	}
	all.Wait()
	return errs
}

// unwritten returns the first error because of which the switches do not have a channel's rules, or
// nil. It ignores errors that only say that some viewers do not get the channel.
func unwritten(errs []error) error {
	for _, err := range errs {
		if _, ok := errors.AsType[*refusals](err); err != nil && !ok {
			return err
		}
	}
	return nil
}

// refusalAt returns why a channel does not reach an endpoint, or nil if it does. err is the error of
// the channel's reconciliation.
func (s *Service) refusalAt(err error, to endpoint) error {
	r, ok := errors.AsType[*refusals](err)
	if !ok {
		return nil
	}
	var at netip.AddrPort
	if g := s.egress.Get(to.gateway); g != nil {
		st := g.State()
		addr, _ := st.Addr(s.Media)
		at = netip.AddrPortFrom(addr, to.port)
	}
	return r.of(to.gateway, at)
}

// granted returns the sources of channels. It omits channels that have no source at present.
func (s *Service) granted(channels []Channel) *gatewayapi.Granted {
	out := &gatewayapi.Granted{Channels: []gatewayapi.Source{}}
	for i := range channels {
		c := &channels[i]
		if _, from, err := s.sources.locate(c); err == nil {
			out.Channels = append(out.Channels, gatewayapi.Source{Channel: c.Name, From: netip.AddrPortFrom(from, gatewayapi.SourcePort(c.Number))})
		}
	}
	return out
}

// requestBursts asks the ingress gateways of channels for the packets since the last key frame.
// It does not wait for them: without a burst, the viewer waits for the next key frame.
func (s *Service) requestBursts(gateway *egressGateway, w *gatewayapi.Wanted, channels []string) {
	st := gateway.State()
	addr, ok := st.Addr(s.Media)
	if !w.Burst || !ok {
		return
	}
	for _, channel := range channels {
		x, ok := s.Channels.Item(channel)
		if !ok {
			continue
		}
		a, err := s.sources.assignedGateway(&x.Value)
		if err != nil || !s.admission.acquireBurst() {
			s.metrics.bursts.WithLabelValues("left-out").Inc()
			continue
		}
		to := gatewayapi.Burst{To: netip.AddrPortFrom(addr, w.Port)}
		started := s.tasks.Start(func(ctx context.Context) {
			defer s.admission.releaseBurst()
			ctx, cancel := context.WithTimeout(ctx, burstTimeout)
			defer cancel()
			if err := a.Client.Burst(ctx, channel, to); err != nil {
				s.metrics.bursts.WithLabelValues("failed").Inc()
				s.warnLimiter.Info(s.Log, "an ingress gateway has not sent a burst", "gateway", a.Name, "channel", channel, "error", err)
				return
			}
			s.metrics.bursts.WithLabelValues("sent").Inc()
		})
		if !started {
			s.admission.releaseBurst()
		}
	}
}

// newEgress returns the registry of egress gateways.
func (s *Service) newEgress() *egressRegistry {
	return agents.New(agents.Options[*gatewayapi.Egress, gatewayapi.ViewerEvent, gatewayapi.Viewer]{
		Service: Name + "/egress", Commands: "sluice cinema gateways egress", Network: s.Network, Store: s.Store, Log: s.Log,
		Publish:     func(kind string, attrs any) { s.publish("egress-"+kind, attrs) },
		Certificate: s.AgentTLS != nil, ControlSubnets: s.ControlSubnets,
		Dial: func(r agents.AgentRecord) (*gatewayapi.Egress, error) {
			return gatewayapi.NewEgress(r.URL, s.AgentTLS, s.Dial)
		},
		Event: s.handleEgressEvent,
		Peers: func(a *egressGateway) []*egressGateway {
			if s.viewers.countAt(a.Name) == 0 {
				return nil
			}
			return []*egressGateway{nil}
		},
		Lost:    s.egressLost,
		Changed: func() { s.Channels.Wake() },
	})
}

// handleEgressEvent processes an event of an egress gateway. before reports whether the event's
// records may be from before this controller's start. A request of the gateway takes precedence over
// its events for as long as these may have been sent before the request.
func (s *Service) handleEgressEvent(a *egressGateway, e control.Event[gatewayapi.ViewerEvent, gatewayapi.Viewer], before bool) {
	if !before {
		s.publishZaps(a.Name, e.Ended)
		s.endOldChannels(a.Name, e.Ended)
	}
	if len(e.Live) == 0 && (e.Status.Sessions > 0 || len(e.Ended) > 0) {
		return // the event only reports what happened, not the present state
	}
	open := func(channel string) bool {
		x, ok := s.Channels.Item(channel)
		return !ok || x.Value.ViewHash == ""
	}
	if before {
		open = func(string) bool { return true } // an earlier controller has checked their passwords
	}
	all, back := s.viewers.applyReport(a.Name, e.Instance, e.Live, s.bounds(a), time.Now(), open)
	for _, x := range all {
		s.publishViewer(x)
	}
	if len(all) > 0 || back {
		s.Channels.Wake()
	}
}

// publishZaps publishes the changes of channel that a gateway's viewers have made.
func (s *Service) publishZaps(gateway string, all []gatewayapi.ViewerEvent) {
	for _, x := range all {
		if x.What == "changed" && viewerID.MatchString(x.Viewer) && channelName.MatchString(x.Channel) {
			s.publish("viewer.changed", map[string]any{"viewer": x.Viewer, "gateway": gateway, "channel": x.Channel, "zap": x.Zap})
			s.metrics.zap.Observe(time.Duration(x.Zap).Seconds())
		}
	}
}

// endOldChannels ends the copies that a gateway's viewers no longer need, because they have changed to
// another channel. It does not wait for the switches.
func (s *Service) endOldChannels(gateway string, all []gatewayapi.ViewerEvent) {
	var channels []string
	for _, x := range s.viewers.applyRecords(gateway, all) {
		_, removed := x.diff()
		channels = append(channels, removed...)
	}
	slices.Sort(channels)
	if channels = slices.Compact(channels); len(channels) == 0 {
		return
	}
	s.tasks.Start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, changeTimeout)
		defer cancel()
		_ = s.reconcile(ctx, channels) // the channels' conditions have the errors
	})
}

// publishViewer publishes that a viewer has joined or left.
func (s *Service) publishViewer(x viewerChange) {
	attrs := map[string]any{"viewer": x.id, "gateway": x.gateway}
	switch {
	case len(x.before) == 0 && len(x.after) > 0:
		attrs["channel"] = x.after[0]
		s.publish("viewer.joined", attrs)
	case len(x.before) > 0 && len(x.after) == 0:
		attrs["channel"] = x.before[0]
		s.publish("viewer.left", attrs)
	}
}

// egressLost stops the copies to an egress gateway until the controller hears from the gateway again,
// or for good if an operator has removed the gateway.
func (s *Service) egressLost(a, _ *egressGateway, cause error) {
	if errors.Is(cause, agents.ErrReplaced) {
		return // the events of the new gateway of this name have reported its viewers
	}
	if s.egress.Get(a.Name) == a {
		s.viewers.markUnreachable(a.Name)
	} else {
		for _, x := range s.viewers.removeGateway(a.Name) {
			s.publishViewer(x)
		}
		s.admission.forget(a.Name)
	}
	s.Channels.Wake()
}

// removeViewer stops all copies to a viewer, and reports whether there was such a viewer.
func (s *Service) removeViewer(ctx context.Context, id string) (bool, error) {
	x, ok := s.viewers.remove(id)
	if !ok {
		return false, nil
	}
	s.publishViewer(x)
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return true, unwritten(s.reconcile(ctx, x.before))
}
