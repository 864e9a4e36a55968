package plugin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/service/control"
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
		Event: s.egressTells,
		Peers: func(a *egressGateway) []*egressGateway {
			if s.viewers.at(a.Name) == 0 {
				return nil
			}
			return []*egressGateway{nil}
		},
		Lost:    s.egressLost,
		Changed: func() { s.Channels.Wake() },
	})
}

// egressTells takes in what an egress gateway tells. What it has asked for comes before what
// it tells, for as long as its events may have been on their way.
func (s *Service) egressTells(a *egressGateway, e control.Event[gatewayapi.ViewerEvent, gatewayapi.Viewer], before bool) {
	if !before {
		s.zapped(a.Name, e.Ended)
	}
	if len(e.Live) == 0 && (e.Status.Sessions > 0 || len(e.Ended) > 0) {
		return // an event about what has happened alone
	}
	open := func(channel string) bool {
		x, is := s.Channels.Item(channel)
		return !is || x.Value.ViewHash == ""
	}
	if before {
		open = func(string) bool { return true } // an earlier controller has let them in
	}
	all, back := s.viewers.take(a.Name, e.Instance, e.Live, s.bounds(a), time.Now(), open)
	for _, x := range all {
		s.tellViewer(x)
	}
	if len(all) > 0 || back {
		s.Channels.Wake()
	}
}

// limit is how many viewers a gateway takes.
func limit(st *agents.State) int { return cmp.Or(st.Limit(), MaxViewers) }

// zapped tells of viewers' changes of channel, which their gateways have made.
func (s *Service) zapped(gateway string, all []gatewayapi.ViewerEvent) {
	for _, x := range all {
		if x.What == "changed" && viewerID.MatchString(x.Viewer) && channelName.MatchString(x.Channel) {
			s.publish("viewer.changed", map[string]any{"viewer": x.Viewer, "gateway": gateway, "channel": x.Channel, "zap": x.Zap})
			s.metrics.zap.Observe(time.Duration(x.Zap).Seconds())
		}
	}
}

// tellViewer tells of a viewer that is new, or gone.
func (s *Service) tellViewer(x changed) {
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

// egressLost ends what an egress gateway does: until it is heard again, or, if an operator
// has removed it, for good.
func (s *Service) egressLost(a, _ *egressGateway, cause error) {
	if errors.Is(cause, agents.ErrReplaced) {
		return // its events have told that
	}
	if s.egress.Get(a.Name) == a {
		s.viewers.leave(a.Name)
	} else {
		for _, x := range s.viewers.forget(a.Name) {
			s.tellViewer(x)
		}
		s.gates.forget(a.Name)
	}
	s.Channels.Wake()
}

// touched are the channels that a change of a viewer concerns: those that are new to it, or of
// which it is not known that it gets them, and those that it has no longer.
func (x *changed) touched() (added, removed []string) {
	for _, c := range x.after {
		if x.again || !slices.Contains(x.before, c) {
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

// remove ends a viewer at the network.
func (s *Service) remove(ctx context.Context, id string) (bool, error) {
	x, is := s.viewers.end(id)
	if !is {
		return false, nil
	}
	s.tellViewer(x)
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return true, s.reconcile(ctx, x.before)
}
