package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
)

// name is the service's name in its API path, events, metrics, store keys and rules.
const name = "quarantine"

// steer is the offset of the service's rules in the stage admit. It is above the rules of other
// services for the host's packets, and below the rules for probes of links. The rules do not match
// ARP, so that the network can still find the host.
const steer = 1000

// Host is a host in quarantine.
type Host struct {
	Name      string     `json:"name" pattern:"^[a-z0-9-]{1,63}$" doc:"Lower-case letters, digits and dashes" example:"printer"`
	Host      netip.Addr `json:"host" doc:"Its address" example:"10.0.0.5"`
	Inspector string     `json:"inspector" doc:"Name of the agent that gets what it sends" example:"west"`
}

// Sent holds what an inspector has received of a flow within a second.
type Sent struct {
	Flow    string `json:"flow"`
	Packets uint64 `json:"packets"`
}

// inspector is the controller's client of an inspector. The inspector only reports.
type inspector = control.Client[Sent, control.Nothing]

// HostInfo is a host as the API shows it.
type HostInfo struct {
	Host
	kit.Condition
}

type quarantine struct {
	*kit.Reconciler[Host]
	net        kit.Network
	inspectors *agents.Registry[*inspector, Sent, control.Nothing]
	metrics    *kit.Metrics
}

func newQuarantine(p kit.Parts) (kit.Service, error) {
	agentTLS, err := p.AgentTLS(pki.RoleAgent)
	if err != nil {
		return nil, err
	}
	owner, err := p.Network.Owner(name, network.OwnerOptions{})
	if err != nil {
		return nil, err
	}
	s := &quarantine{net: p.Network, metrics: kit.NewMetrics(name)}
	publish := func(kind string, attrs any) { p.Bus.Publish(name+"."+kind, attrs) }
	s.Reconciler = kit.NewReconciler(kit.Options[Host]{
		Kind:  kit.Kind[Host]{Singular: "host", Plural: "hosts in quarantine", Prefix: name + "/hosts/", Event: "host", MaxItems: 256},
		Store: p.Store, Log: p.Log, Publish: publish,
	}, owner, s.program)
	s.inspectors = agents.New(agents.Options[*inspector, Sent, control.Nothing]{
		Service: name, Network: p.Network, Store: p.Store, Log: p.Log, Publish: publish, Certificate: agentTLS != nil, Changed: s.Wake,
		Dial: func(r agents.AgentRecord) (*inspector, error) {
			return control.NewClient[Sent, control.Nothing](r.URL, agentTLS, p.DialAgent)
		},
		Event: func(_ *agents.Agent[*inspector], e control.Event[Sent, control.Nothing], _ bool) {
			for _, sent := range e.Ended {
				publish("host.sent", sent)
			}
		},
	})
	s.inspectors.Metrics(s.metrics)
	s.metrics.Gauges("hosts", "Hosts in quarantine.", nil, func(is func(float64, ...string)) { is(float64(len(s.Items()))) })
	p.Network.Subscribe(func(e network.Event) { s.inspectors.NetworkChanged(e); s.Wake() })
	return s, nil
}

func (s *quarantine) Name() string { return name }

func (s *quarantine) Run(ctx context.Context) error {
	return s.inspectors.While(ctx, func(ctx context.Context) error { return s.Reconciler.Run(ctx, nil) })
}

func (s *quarantine) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := kit.NewREST(a, name)
	hosts := kit.Resource[Host, Host, HostInfo]{
		Collection: s.Collection, Path: "hosts", Field: "name", Show: s.show,
		Parse: func(_ string, h Host) (string, Host, error) { return h.Name, h, nil },
	}
	hosts.Register(r)
	s.inspectors.Register(a, r)
}

func (s *quarantine) show(all []kit.Item[Host]) []HostInfo {
	out := make([]HostInfo, len(all))
	for i, x := range all {
		out[i] = HostInfo{x.Value, s.Condition(x)}
	}
	return out
}

// program returns the rules that send a host's IP packets along a path from its port to the
// inspector.
func (s *quarantine) program(ctx context.Context, x kit.Item[Host]) (p network.Program, err error) {
	host, hostErr := s.net.ResolveHost(ctx, x.Value.Host)
	inspector, inspectorErr := s.inspectors.Find(x.Value.Inspector, x.Value.Host)
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
