package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
)

// name is the service's name in API paths, events, metrics, store keys and rules.
const name = "balance"

// ask and lead are offsets of rules in the stage select. Rules with the offset ask send the first
// packet of a connection to the controller, and rules with the offset lead forward connections.
const ask, lead = 300, 310

// Front is a virtual address in front of servers, at one TCP port.
type Front struct {
	Name    string     `json:"name" pattern:"^[a-z0-9-]{1,63}$" doc:"Lower-case letters, digits and dashes" example:"web"`
	Address netip.Addr `json:"address" doc:"Address that no host has" example:"10.0.0.100"`
	Port    uint16     `json:"port" minimum:"1" doc:"TCP port of the address, and of the servers" example:"80"`
	Servers []string   `json:"servers" minItems:"1" maxItems:"64" doc:"Names of the agents beside the servers" example:"[\"west\",\"east\"]"`
}

// Answers is what an agent reports when the server beside it begins or ceases to answer.
type Answers struct {
	Answers bool `json:"answers"`
}

// server is the controller's client of the agent beside a server. The agent only reports.
type server = control.Client[Answers, control.Nothing]

// FrontInfo is a virtual address as the API shows it.
type FrontInfo struct {
	Front
	kit.Condition
	Connections map[string]int `json:"connections" doc:"How many connections each server has"`
}

type balance struct {
	*kit.Reconciler[Front]
	flows      *kit.Flows[connection]
	net        kit.Network
	treatments *network.Treatments
	servers    *agents.Registry[*server, Answers, control.Nothing]
	metrics    *kit.Metrics

	mu      sync.Mutex
	answers map[string]bool // whether a server answers, by its agent; unknown if absent
}

func newBalance(p kit.Parts) (kit.Service, error) {
	agentTLS, err := p.AgentTLS(pki.RoleAgent)
	if err != nil {
		return nil, err
	}
	owner, err := kit.NewOwner(p.Network, name)
	if err != nil {
		return nil, err
	}
	s := &balance{net: p.Network, treatments: p.Treatments, metrics: kit.NewMetrics(name), answers: map[string]bool{}}
	publish := func(kind string, attrs any) { p.Bus.Publish(name+"."+kind, attrs) }
	s.Reconciler = kit.NewReconciler(kit.Options[Front]{
		Kind: kit.Kind[Front]{
			Singular: "front", Plural: "virtual addresses", Prefix: name + "/fronts/", Event: "front", MaxItems: 256, Conflicts: conflicts,
		},
		Store: p.Store, Log: p.Log, Publish: publish,
	}, owner.Part("fronts"), s.program)
	s.OnChange = func(context.Context, string, network.Program) { _ = s.virtual(); s.flows.Wake() }
	s.flows = kit.NewFlows(kit.FlowOptions[connection]{
		Name: name, Network: p.Network, Rules: owner.Part("flows"), Store: p.Store, Prefix: name + "/flows/", Log: p.Log,
		Identify: s.identify, Place: s.place,
	})
	s.servers = agents.New(agents.Options[*server, Answers, control.Nothing]{
		Service: name, Network: p.Network, Store: p.Store, Log: p.Log, Publish: publish, Certificate: agentTLS != nil, Changed: s.flows.Wake,
		Dial: func(r agents.AgentRecord) (*server, error) {
			return control.NewClient[Answers, control.Nothing](r.URL, agentTLS, p.DialAgent)
		},
		Event: s.told,
	})
	s.servers.Metrics(s.metrics)
	s.flows.Metrics(s.metrics)
	p.Network.AddHandler(rule.ChainForwarding-1, s.flows)
	p.Network.Subscribe(func(e network.Event) { s.servers.NetworkChanged(e); s.Wake(); s.flows.Wake() })
	p.Treatments.Subscribe(name, s.flows.Wake)
	return s, nil
}

func (s *balance) Name() string { return name }

// Run runs the parts of the service until ctx ends. It reads the stored connections after the
// declared virtual addresses.
func (s *balance) Run(ctx context.Context) error {
	return s.servers.While(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			defer cancel()
			ended <- s.Reconciler.Run(ctx, nil)
		}()
		var err error
		select {
		case <-s.Loaded():
			err = s.flows.Run(ctx)
			cancel()
		case <-ctx.Done():
		}
		return errors.Join(err, <-ended)
	})
}

func (s *balance) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := kit.NewREST(a, name)
	fronts := kit.Resource[Front, Front, FrontInfo]{
		Collection: s.Collection, Path: "fronts", Field: "name", Show: s.show,
		Parse: func(_ string, f Front) (string, Front, error) { return f.Name, f, nil },
	}
	fronts.Register(r)
	s.servers.Register(a, r)
}

func (s *balance) show(all []kit.Item[Front]) []FrontInfo {
	connections := map[string]map[string]int{}
	for _, c := range s.flows.Values() {
		if connections[c.Front] == nil {
			connections[c.Front] = map[string]int{}
		}
		connections[c.Front][c.Server]++
	}
	out := make([]FrontInfo, len(all))
	for i, x := range all {
		out[i] = FrontInfo{x.Value, s.Condition(x), connections[x.Name]}
	}
	return out
}

// conflicts returns an error for a second front with the same address and port.
func conflicts(name string, f Front, all []kit.Item[Front]) error {
	for _, x := range all {
		if x.Name != name && x.Value.Address == f.Address && x.Value.Port == f.Port {
			return fmt.Errorf("%v, port %d, is that of front %q: %w", f.Address, f.Port, x.Name, kit.ErrExists)
		}
	}
	return nil
}

// virtual makes the network answer for the declared addresses.
func (s *balance) virtual() error {
	all := map[netip.Addr]openflow.MAC{}
	for _, f := range s.Values() {
		all[f.Address] = openflow.MAC{}
	}
	return s.net.SetVirtual(name, all)
}

// program returns the rules by which every switch sends first packets to the controller.
func (s *balance) program(_ context.Context, x kit.Item[Front]) (p network.Program, err error) {
	if err := s.virtual(); err != nil {
		return p, err
	}
	for _, d := range s.net.Topology().Switches {
		p.Rules = append(p.Rules, network.Rule{
			Switch: d, Stage: network.StageSelect, Offset: ask, Leased: true,
			Match: tcp(openflow.IPDst(x.Value.Address), openflow.TCPDst(x.Value.Port)), Actions: []openflow.Action{openflow.Output(openflow.PortController)},
		})
	}
	return p, nil
}

// told records a report of the agent beside a server.
func (s *balance) told(a *agents.Agent[*server], e control.Event[Answers, control.Nothing], _ bool) {
	if len(e.Ended) == 0 {
		return
	}
	s.mu.Lock()
	s.answers = maps.Clone(s.answers)
	s.answers[a.Name] = e.Ended[len(e.Ended)-1].Answers
	s.mu.Unlock()
	s.flows.Wake()
}
