package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/controller"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
)

// name is the service's: of its path in the API, its events, metrics, keys and rules.
const name = "quarantine"

// steer is the place of the rules in the stage admit: above what services do with the host's
// packets, below probes of links. Its ARP goes its ordinary way, so that it can be found.
const steer = 1000

// Host is a host in quarantine.
type Host struct {
	Name      string     `json:"name" pattern:"^[a-z0-9-]{1,63}$" doc:"Lower-case letters, digits and dashes" example:"printer"`
	Host      netip.Addr `json:"host" doc:"Its address" example:"10.0.0.5"`
	Inspector netip.Addr `json:"inspector" doc:"Address of the agent that gets what it sends" example:"10.0.0.9"`
}

// HostInfo is a host as the API shows it.
type HostInfo struct {
	Host
	service.Condition
}

type quarantine struct {
	*service.Reconciler[Host]
	net     service.Network
	bus     *event.Bus
	metrics *service.Metrics
}

func newQuarantine(p controller.Parts) (controller.Service, error) {
	owner, err := p.Network.Owner(name, network.OwnerOptions{})
	if err != nil {
		return nil, err
	}
	s := &quarantine{net: p.Network, bus: p.Bus, metrics: service.NewMetrics(name)}
	s.Reconciler = service.NewReconciler(service.Options[Host]{
		Kind:  service.Kind[Host]{Noun: "host", Nouns: "hosts in quarantine", Prefix: name + "/hosts/", Event: name + ".host", Most: 256},
		Store: p.Store, Log: p.Log, Publish: func(kind string, attrs any) { p.Bus.Publish(kind, attrs) },
	}, owner, s.program)
	s.metrics.Gauges("hosts", "Hosts in quarantine.", nil, func(is func(float64, ...string)) { is(float64(len(s.Items()))) })
	p.Network.Subscribe(func(network.Event) { s.Wake() })
	return s, nil
}

func (s *quarantine) Name() string                  { return name }
func (s *quarantine) Run(ctx context.Context) error { return s.Reconciler.Run(ctx, nil) }

func (s *quarantine) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := service.NewREST(a, name)
	hosts := service.Resource[Host, Host, HostInfo]{Collection: s.Collection, Path: "hosts", Field: "name", Parse: parse, Show: s.show}
	hosts.Register(r)
	service.Register(r, http.MethodPost, "sent", "Say what an inspector has got", s.sent)
}

func parse(_ string, h Host) (string, Host, error) {
	var faults service.Faults
	faults.Check(h.Inspector != h.Host, "inspector", h.Inspector, "the address of another host")
	return h.Name, h, faults.Err()
}

func (s *quarantine) show(all []service.Item[Host]) []HostInfo {
	out := make([]HostInfo, len(all))
	for i, x := range all {
		out[i] = HostInfo{x.Value, s.Condition(x)}
	}
	return out
}

// sent tells of what an inspector has got within a second, packets of each flow, as events.
func (s *quarantine) sent(_ context.Context, in *service.Body[map[string]uint64]) (*service.Nothing, error) {
	for flow, packets := range in.Body {
		s.bus.Publish(name+".host.sent", map[string]any{"flow": flow, "packets": packets})
	}
	return nil, nil
}

// program leads what a host sends from its port to the inspector.
func (s *quarantine) program(ctx context.Context, x service.Item[Host]) (p network.Program, err error) {
	host, hostErr := s.net.ResolveHost(ctx, x.Value.Host)
	inspector, inspectorErr := s.net.ResolveHost(ctx, x.Value.Inspector)
	if err := errors.Join(hostErr, inspectorErr); err != nil {
		return p, err
	}
	path, ok := s.net.Topology().Path(host.At, inspector.At, network.MetricHops)
	if !ok {
		return p, fmt.Errorf("%v to %v: %w", host.At, inspector.At, network.ErrNoPath)
	}
	for _, hop := range path.Hops {
		for _, ethType := range []uint16{0x0800, 0x86dd} {
			p.Rules = append(p.Rules, network.Rule{
				Switch: hop.Switch, Stage: network.StageAdmit, Offset: steer,
				Match:   openflow.MustMatch(openflow.InPort(hop.In), openflow.EthSrc(host.MAC), openflow.EthType(ethType)),
				Actions: []openflow.Action{openflow.SetField(openflow.EthDst(inspector.MAC)), openflow.Output(hop.Output())},
			})
		}
	}
	return p, nil
}
