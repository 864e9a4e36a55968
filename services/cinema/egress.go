package cinema

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

type (
	egressRegistry = agents.Registry[*gatewayapi.Egress, gatewayapi.ViewerEvent, gatewayapi.Viewer]
	egressGateway  = agents.Agent[*gatewayapi.Egress]
)

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

// handleEgressEvent processes an event of an egress gateway. A request of the gateway takes
// precedence over its events for as long as these may have been sent before the request.
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

// viewerLimit returns how many viewers a gateway accepts.
func viewerLimit(st *agents.State) int { return cmp.Or(st.Limit(), MaxViewers) }

// publishZaps publishes the changes of channel that a gateway's viewers have made.
func (s *Service) publishZaps(gateway string, all []gatewayapi.ViewerEvent) {
	for _, x := range all {
		if x.What == "changed" && viewerID.MatchString(x.Viewer) && channelName.MatchString(x.Channel) {
			s.publish("viewer.changed", map[string]any{"viewer": x.Viewer, "gateway": gateway, "channel": x.Channel, "zap": x.Zap})
			s.metrics.zap.Observe(time.Duration(x.Zap).Seconds())
		}
	}
}

// endOldChannels ends the copies that a gateway's viewers do not need since they have changed.
// It does not wait for the switches.
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

// egressLost stops the copies to an egress gateway: until it is heard again, or for good if an
// operator has removed it.
func (s *Service) egressLost(a, _ *egressGateway, cause error) {
	if errors.Is(cause, agents.ErrReplaced) {
		return // the new gateway's events have told that
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

// diff returns the channels that a change of a viewer affects: those that are new or not
// confirmed yet, and those that are removed.
func (x *viewerChange) diff() (added, removed []string) {
	for _, c := range x.after {
		if x.repeated || !slices.Contains(x.before, c) {
			added = append(added, c)
		}
	}
	for _, c := range x.before {
		if !slices.Contains(x.after, c) {
			removed = append(removed, c)
		}
	}
	return added, removed
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
