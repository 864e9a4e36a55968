package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/store"
)

const (
	// maxAgents bounds the agents; each costs a connection and a goroutine.
	maxAgents = 1024
	// drainTimeout bounds the request to drain an agent.
	drainTimeout = 5 * time.Second
)

// Client is the registry's connection to an agent: a *control.Client, or a type that embeds one. R
// is the type of an agent's records, and L the type of its work in progress.
type Client[R, L any] interface {
	Status(context.Context) (control.Status, error)
	Drain(context.Context, bool) (control.Status, error)
	Watch(context.Context, time.Duration, func(control.Event[R, L])) error
	Knock(context.Context) error
	Close()
}

// Options configures a Registry. Its functions are called without a lock held. All but Dial and
// Event may be nil.
type Options[C Client[R, L], R, L any] struct {
	// Service is the name of the service, like "sos". A service with several kinds of agents has a
	// registry for each kind, like "cinema/ingress".
	Service string
	// Commands begins the operator's commands for the agents. If it is empty, it is "sluice", the
	// service's name and "agents", like "sluice sos agents".
	Commands string
	Network  kit.Network
	Store    store.Store
	Log      *slog.Logger
	Publish  func(kind string, attrs any)
	// Certificate reports whether the controller has a certificate for agents on other machines.
	Certificate bool
	// ControlSubnets holds the networks in which an agent that announces itself may have its
	// control address. The address from which it announces itself is always allowed.
	ControlSubnets []netip.Prefix
	// Configured holds the agents of the configuration, by name.
	Configured map[string]AgentRecord
	// Dial returns a client of an agent. It does not block.
	Dial func(AgentRecord) (C, error)
	// Timing returns two limits for the silence of an agent. After silent, the agent gets no new
	// work. After deadAfter, its work is ended even if nothing else shows that the agent is dead.
	Timing func() (silent, deadAfter time.Duration)

	// Event handles an event of an agent, with the records that are new. before reports that the
	// records may be from before this controller's start.
	Event func(a *Agent[C], e control.Event[R, L], before bool)
	// Missed is called when records of an agent are lost, because an agent keeps only a bounded
	// number of them.
	Missed func(context.Context, *Agent[C])
	// Heard is called when an agent is heard after a silence.
	Heard func(context.Context, *Agent[C])
	// Peers returns the agents with which an agent works now. A nil in the result stands for work
	// that the agent does alone.
	Peers func(*Agent[C]) []*Agent[C]
	// Lost is called when the common work of two agents, a and with, has ended. cause says why. If
	// with is nil, all work of a has ended.
	Lost func(a, with *Agent[C], cause error)
	// Changed is called when addresses, ports or places of agents have changed.
	Changed func()
}

// Registry keeps the agents of a service. Call Load, then Run, then Close. The other methods may be
// called at any time and concurrently.
type Registry[C Client[R, L], R, L any] struct {
	Options[C, R, L]
	*kit.Collection[AgentRecord]
	tasks *tasks.Group
	loop  kit.Loop

	mu     sync.Mutex // no other lock is taken while it is held
	agents map[string]*Agent[C]
	list   []*Agent[C] // by name; replaced when it changes
}

// New returns a registry without agents.
func New[C Client[R, L], R, L any](o Options[C, R, L]) *Registry[C, R, L] {
	o = o.complete()
	r := &Registry[C, R, L]{Options: o, tasks: tasks.New(), loop: kit.NewLoop(), agents: map[string]*Agent[C]{}}
	r.Collection = kit.NewCollection(kit.Options[AgentRecord]{
		Kind: kit.Kind[AgentRecord]{
			Singular: "agent", Plural: "agents", Prefix: o.Service + "/agents/", Event: "agent", MaxItems: maxAgents, Conflicts: conflicts,
		},
		Store: o.Store, Log: o.Log, Publish: o.Publish, Changed: r.changed,
	})
	return r
}

// complete returns the options with defaults for those that are not set.
func (o Options[C, R, L]) complete() Options[C, R, L] {
	o.Commands = cmp.Or(o.Commands, "sluice "+o.Service+" agents")
	if o.Publish == nil {
		o.Publish = func(string, any) {}
	}
	if o.Timing == nil {
		o.Timing = func() (silent, deadAfter time.Duration) { return 2200 * time.Millisecond, time.Minute }
	}
	if o.Missed == nil {
		o.Missed = func(context.Context, *Agent[C]) {}
	}
	if o.Heard == nil {
		o.Heard = func(context.Context, *Agent[C]) {}
	}
	if o.Peers == nil {
		o.Peers = func(*Agent[C]) []*Agent[C] { return nil }
	}
	if o.Lost == nil {
		o.Lost = func(_, _ *Agent[C], _ error) {}
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return o
}

// Load reads the stored agents, replaces those of the earlier configuration by the configured ones,
// and starts to follow the agents. It must be given the context that Run will be given.
func (r *Registry[C, R, L]) Load(ctx context.Context) error {
	if err := r.Collection.Load(ctx, r.Configured); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.Values() {
		r.follow(x, true)
	}
	return nil
}

// Run follows the agents until ctx ends.
func (r *Registry[C, R, L]) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.tasks.Cancel)
	defer stop()
	defer r.tasks.Stop()
	r.tasks.Start(r.Collection.Run)
	r.loop.Run(ctx, debounce, findInterval, func(context.Context) { r.Refresh() })
}

// Close closes the connections to all agents. Call it when Run has returned and nothing uses the
// agents' clients any more.
func (r *Registry[C, R, L]) Close() {
	r.tasks.Stop()
	for _, a := range r.List() {
		a.Client.Close()
	}
}

// While loads and follows the agents while f runs. f must return when ctx ends.
func (r *Registry[C, R, L]) While(ctx context.Context, f func(context.Context) error) error {
	defer r.Close()
	if err := r.Load(ctx); err != nil {
		return err
	}
	running := tasks.New()
	defer running.Stop()
	running.Start(r.Run)
	return f(ctx)
}

// Find returns the place of the agent with a name for a connection of a family.
func (r *Registry[C, R, L]) Find(name string, family netip.Addr) (Place, error) {
	a := r.Get(name)
	if a == nil {
		return Place{}, fmt.Errorf("agent %q: %w", name, kit.ErrUnknown)
	}
	s := a.State()
	if why := s.Unfit(family); why != "" {
		return Place{}, fmt.Errorf("agent %s %s", name, why)
	}
	addr, _ := s.Addr(family)
	return s.Places[addr], nil
}

// List returns the agents, sorted by name. The caller must not modify the list.
func (r *Registry[C, R, L]) List() []*Agent[C] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}

// Get returns the agent with a name, or nil.
func (r *Registry[C, R, L]) Get(name string) *Agent[C] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agents[name]
}

// Needed returns the data addresses of the agents, for examinations of the network, and with the
// first address of each what other programs keep changing on its machine. of is the service's name
// in messages.
func (r *Registry[C, R, L]) Needed(of string) (out []diagnosis.Needed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.list {
		for i, addr := range a.state.Addrs {
			n := diagnosis.Needed{Addr: addr, Who: "agent " + a.Name + " of " + of}
			if i == 0 {
				n.Drift, n.DriftRemedy = a.drift.problem(&a.state.Status, time.Now())
			}
			out = append(out, n)
		}
	}
	return out
}

// conflicts returns an error if another agent has the URL or one of the addresses of a record.
func conflicts(name string, r AgentRecord, all []kit.Item[AgentRecord]) error {
	for _, x := range all {
		if x.Name == name {
			continue
		}
		for _, addr := range r.Addrs {
			if slices.Contains(x.Value.Addrs, addr) {
				return fmt.Errorf("data address %v is of agent %q: %w", addr, x.Name, kit.ErrExists)
			}
		}
		if x.Value.URL == r.URL {
			return fmt.Errorf("control URL %s is of agent %q: %w", r.URL, x.Name, kit.ErrExists)
		}
	}
	return nil
}

// changed starts to follow new agents, and stops following agents that were removed or replaced.
func (r *Registry[C, R, L]) changed(_ context.Context, changes []kit.Change[AgentRecord]) {
	for _, c := range changes {
		r.mu.Lock()
		a := r.agents[c.Name]
		gone := a != nil && (c.After == nil || !a.state.sameProcess(&c.After.Value))
		switch {
		case gone:
			a.state.Draining = true
			delete(r.agents, c.Name)
		case a != nil:
			a.state.AgentRecord = c.After.Value
		}
		if c.After != nil && r.agents[c.Name] == nil {
			r.follow(c.After.Value, false)
		}
		r.sort()
		r.mu.Unlock()
		if gone {
			r.Lost(a, nil, errors.New("removed by the operator"))
			a.stop()
			a.Client.Close()
		}
	}
	r.Changed()
}

// sort makes the sorted list. The lock is held.
func (r *Registry[C, R, L]) sort() {
	r.list = slices.SortedFunc(maps.Values(r.agents), func(a, b *Agent[C]) int { return cmp.Compare(a.Name, b.Name) })
}

// follow makes an agent from a record, and starts to follow its events. stored reports whether the
// record was in the store at the start. The lock is held.
func (r *Registry[C, R, L]) follow(rec AgentRecord, stored bool) {
	client, err := r.Dial(rec)
	if err != nil {
		r.Options.Log.Error("an agent cannot be used", "agent", rec.Name, "error", err)
		return
	}
	ctx, stop := context.WithCancel(r.tasks.Context())
	a := &Agent[C]{
		Name: rec.Name, Client: client, stop: stop, stored: stored, mu: &r.mu, upSince: time.Now(), missed: map[netip.Addr]bool{},
		state: State{AgentRecord: rec, Liveness: Unknown, Places: map[netip.Addr]Place{}},
	}
	r.agents[rec.Name] = a
	r.sort()
	if !r.tasks.Start(func(context.Context) { r.watch(ctx, a) }) {
		client.Close()
	}
}

// Add stores an agent and starts to follow it.
func (r *Registry[C, R, L]) Add(ctx context.Context, x AgentRecord) error {
	x.Added = time.Now().UTC()
	return r.Collection.Add(ctx, x.Name, x)
}

// Remove removes an agent. It refuses to remove an agent that carries sessions unless force is set;
// the sessions then end as if the agent were lost.
func (r *Registry[C, R, L]) Remove(ctx context.Context, name string, force bool) error {
	if a := r.Get(name); a != nil && !force {
		if busy := a.State().Sessions; busy > 0 {
			return fmt.Errorf("it carries %d sessions: drain it first, or force: %w", busy, kit.ErrInUse)
		}
	}
	return r.Collection.Remove(ctx, name, 0)
}

// Drain makes an agent take no new sessions, or take them again. It also works for an agent that
// cannot be reached.
func (r *Registry[C, R, L]) Drain(ctx context.Context, name string, on bool) error {
	x, _ := r.Item(name)
	rec := x.Value
	rec.Draining = on
	if err := r.Replace(ctx, name, rec, x.Revision); err != nil {
		return err
	}
	if a := r.Get(name); a != nil {
		ctx, cancel := context.WithTimeout(ctx, drainTimeout)
		defer cancel()
		if st, err := a.Client.Drain(ctx, on); err == nil {
			r.updateStatus(a, st)
		}
	}
	return nil
}

// NetworkChanged tells the registry of a change in the network. It does not block.
func (r *Registry[C, R, L]) NetworkChanged(e network.Event) {
	r.loop.Wake()
	if e.Kind == network.PortDown {
		r.tasks.Start(func(context.Context) { r.portDown(e.Port) })
	}
}

// Metrics adds the number of agents in each state.
func (r *Registry[C, R, L]) Metrics(m *kit.Metrics) {
	m.Gauges("agents", "Known agents, by state.", []string{"state"}, func(emit func(float64, ...string)) {
		states := map[Liveness]int{Unknown: 0, Up: 0, Silent: 0}
		for _, a := range r.List() {
			states[a.State().Liveness]++
		}
		for state, n := range states {
			emit(float64(n), string(state))
		}
	})
}
