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
	// drainTimeout bounds how long an agent that is being drained may take to answer.
	drainTimeout = 5 * time.Second
)

// Client is what the registry asks of an agent: a *control.Client, or what embeds one. R is
// what agents record, L what they have under way.
type Client[R, L any] interface {
	Status(context.Context) (control.Status, error)
	Drain(context.Context, bool) (control.Status, error)
	Watch(context.Context, time.Duration, func(control.Event[R, L])) error
	Knock(context.Context) error
	Close()
}

// Options is what a Registry works with. Its functions are called without a lock, and may be
// nil but for Dial and Event.
type Options[C Client[R, L], R, L any] struct {
	// Service is the name of the service, like "sos"; one with several kinds of agents has a
	// registry for each, like "cinema/ingress".
	Service string
	// Commands begin those of the operator, like "sluice sos agents", which is what stands
	// for none here.
	Commands string
	Network  kit.Network
	Store    store.Store
	Log      *slog.Logger
	Publish  func(kind string, attrs any)
	// Certificate says that the controller has one, for agents on other machines.
	Certificate bool
	// ControlSubnets are those in which agents that announce themselves may have
	// their control address, besides the address that they do it from.
	ControlSubnets []netip.Prefix
	// Configured are the agents of the configuration, by name.
	Configured map[string]AgentRecord
	// Dial returns a client of an agent. It does not wait.
	Dial func(AgentRecord) (C, error)
	// Timing says how long an agent may be silent until it gets nothing new, and how long
	// until what it has is over, though nothing says that it is dead.
	Timing func() (silent, patience time.Duration)

	// Event takes in what an agent tells, with records that are new. before says that they
	// may be from before this controller's start.
	Event func(a *Agent[C], e control.Event[R, L], before bool)
	// Missed says that records of an agent are lost: it keeps only so many.
	Missed func(context.Context, *Agent[C])
	// Heard says that an agent is heard after a time without a word.
	Heard func(context.Context, *Agent[C])
	// Peers are the agents with which one works now; nil stands for what it does alone.
	Peers func(*Agent[C]) []*Agent[C]
	// Lost says that what an agent does with another is over, and why; nil: all it does.
	Lost func(a, with *Agent[C], cause error)
	// Changed says that addresses, ports or places of agents have changed.
	Changed func()
}

// Registry is the agents of a service. Use it so: Load, then Run, then Close; the other
// methods may be called at any time, by many goroutines.
type Registry[C Client[R, L], R, L any] struct {
	Options[C, R, L]
	*kit.Collection[AgentRecord]
	tasks *tasks.Group
	loop  kit.Loop

	mu     sync.Mutex // a leaf: nothing else is locked under it
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

// complete fills in what is left out.
func (o Options[C, R, L]) complete() Options[C, R, L] {
	o.Commands = cmp.Or(o.Commands, "sluice "+o.Service+" agents")
	if o.Publish == nil {
		o.Publish = func(string, any) {}
	}
	if o.Timing == nil {
		o.Timing = func() (silent, patience time.Duration) { return 2200 * time.Millisecond, time.Minute }
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

// Load reads what the store has, makes what is configured part of it, and starts to follow the agents. ctx is to be that of Run.
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

// Run keeps the agents until ctx ends.
func (r *Registry[C, R, L]) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.tasks.Cancel)
	defer stop()
	defer r.tasks.Stop()
	r.tasks.Start(r.Collection.Run)
	r.loop.Run(ctx, settle, findAgain, func(context.Context) { r.Refresh() })
}

// Close ends the connections to all agents, when Run has returned and nothing that may speak
// to them runs any more.
func (r *Registry[C, R, L]) Close() {
	r.tasks.Stop()
	for _, a := range r.List() {
		a.Client.Close()
	}
}

// While keeps the agents while f runs, which is told by ctx when to end.
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

// Find is where the agent of a name is for a connection of that family.
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

// List are the agents, by name. It is not to be modified.
func (r *Registry[C, R, L]) List() []*Agent[C] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}

// Get finds an agent by its name, or returns nil.
func (r *Registry[C, R, L]) Get(name string) *Agent[C] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agents[name]
}

// Needed lists the data addresses of agents, for examinations of the network.
func (r *Registry[C, R, L]) Needed(of string) (out []diagnosis.Needed) {
	for _, a := range r.List() {
		for _, addr := range a.State().Addrs {
			out = append(out, diagnosis.Needed{Addr: addr, Who: "agent " + a.Name + " of " + of})
		}
	}
	return out
}

// conflicts says which other agent has an address of one, or its URL.
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

// changed follows agents that are new, and leaves those that have gone, or are
// others now under the same names.
func (r *Registry[C, R, L]) changed(_ context.Context, changes []kit.Change[AgentRecord]) {
	for _, c := range changes {
		r.mu.Lock()
		a := r.agents[c.Name]
		gone := a != nil && (c.After == nil || !a.state.same(&c.After.Value))
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

// sort renews the list. The lock is held.
func (r *Registry[C, R, L]) sort() {
	r.list = slices.SortedFunc(maps.Values(r.agents), func(a, b *Agent[C]) int { return cmp.Compare(a.Name, b.Name) })
}

// follow makes an agent of a record, which may be a stored one, and starts to follow
// its events. The lock is held.
func (r *Registry[C, R, L]) follow(rec AgentRecord, stored bool) {
	client, err := r.Dial(rec)
	if err != nil {
		r.Options.Log.Error("an agent cannot be used", "agent", rec.Name, "error", err)
		return
	}
	ctx, stop := context.WithCancel(r.tasks.Context())
	a := &Agent[C]{
		Name: rec.Name, Client: client, stop: stop, stored: stored, mu: &r.mu, news: time.Now(), missed: map[netip.Addr]bool{},
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

// Remove forgets an agent. With sessions it is refused unless forced; they
// then end as if the agent were lost.
func (r *Registry[C, R, L]) Remove(ctx context.Context, name string, force bool) error {
	if a := r.Get(name); a != nil && !force {
		if busy := a.State().Sessions; busy > 0 {
			return fmt.Errorf("it carries %d sessions: drain it first, or force: %w", busy, kit.ErrInUse)
		}
	}
	return r.Collection.Remove(ctx, name, 0)
}

// Drain makes an agent take no new sessions, or take them again. It works
// for an agent that cannot be reached as well.
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
			r.learn(a, st)
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

// Metrics adds how many agents are in which state.
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
