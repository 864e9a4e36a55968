package service

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

const (
	// maxFlows is how many flows a service has unless it says otherwise.
	maxFlows = 4096
	// maxHeldOfFlow bounds the packets that are held of one flow, maxHeld those of all. A switch
	// has a quarter of them, and a port an eighth.
	maxHeldOfFlow, maxHeld = 16, 1024
	// maxPlacing bounds the flows that are placed at one time because of packets. A switch has a
	// quarter of them, and a port an eighth.
	maxPlacing = 512
	// flowTimeout bounds the work on one flow, and holdFor the time for which a packet is held:
	// longer, so that a flow that fails in time forwards its packets itself.
	flowTimeout, holdFor = 4 * time.Second, 5 * time.Second
	// flowsRetry is how often flows are looked at of which something has failed, and flowsEvery
	// how often all others.
	flowsRetry, flowsEvery = 5 * time.Second, 30 * time.Second
	// restoreFor is how long after the start a flow of before may not be placeable until it ends.
	restoreFor = time.Minute
)

// ErrFlowEnded tells Flows that a flow is not to go on: Place returns it, wrapped or not. Its
// rules are removed, and its next packet begins another flow.
var ErrFlowEnded = errors.New("the flow has ended")

// FlowOptions is what Flows works with.
type FlowOptions[T any] struct {
	// Name is that of the packet-in handler.
	Name string
	// Network says behind which ports hosts are: flows begin nowhere else.
	Network interface{ IsEdge(network.PortRef) bool }
	// Rules is where the flows' rules belong. Flows sets its OnRemoved, and calls its Ready.
	Rules *Part
	// Store keeps the flows over a restart, under keys that begin with Prefix.
	Store  store.Store
	Prefix string
	Log    *slog.Logger
	// Identify reports whether a packet belongs to a flow of the service, and returns the flow's
	// name and what its first packet tells of it. It runs on the switch's goroutine for every
	// packet that a switch sends up, and must not block. A packet that comes by another port than
	// a flow's rules are for, as after its host has moved, has Place called again.
	Identify func(p *network.PacketIn) (name string, first T, ok bool)
	// Place decides where a flow goes: it returns the rules, and what is to be known of the flow
	// from now on. It is given what Identify or Place returned last, also after a restart, and
	// decides again when the network has changed. It is called for several flows at once, and told
	// by ctx when to give up. When a flow cannot be placed, its packets go on as if the service
	// were not there, and rules that it has had stay until it can be.
	Place func(ctx context.Context, name string, v T) (T, network.Program, error)
	// Most bounds the flows; zero stands for 4096. Those whose first packets came by one port may
	// be MostEach; zero stands for an eighth. Those of one switch may be twice as many.
	Most, MostEach int
}

// Flows has rules written for flows that traffic brings. The first packet of a flow is held with
// those that follow, while Place decides about the flow and its rules are written: then they go
// through the switch's tables, in the order in which they came. A packet that comes in just after
// the rules may overtake them. Flows are worked on side by side, so that a slow one holds up no other.
//
// A flow ends when the last of its rules with a timeout has ended by that, or when Place says so.
// Have Idle and NotifyRemoved in a rule of each direction that keeps a flow alive, as [Along] does.
// If one direction has been idle and another has not, all rules are written again when a packet
// comes up next.
//
// Flows is a [network.Handler]; add it to the chain, and call Run. Have Wake called when the
// network has changed. To see packets at all, declare rules that send them to the controller.
type Flows[T any] struct {
	FlowOptions[T]
	tasks   *tasks.Group
	loop    Loop
	queue   *queue // of names
	woken   atomic.Bool
	limiter lograte.Limit

	mu       sync.Mutex
	flows    map[string]*flow[T]
	opened   Shares // flows, by the port of the first packet
	placing  Shares // those of them that packets wait for
	held     Shares // packets
	rates    rates
	refused  map[string]uint64 // packets that were not held, by why
	running  bool              // the flows of before have been read, and Run has not returned
	ended    bool
	restore  time.Time // until when flows of before may not be placeable
	restored int       // flows of before whose rules are not known yet
	ready    sync.Once
}

// flow is one that is there, or of which something is left. Flows.mu guards it, but what only its
// worker uses.
type flow[T any] struct {
	name  string
	from  network.PortRef // by which its first packet came
	value T
	held  []heldPacket
	due   bool // packets wait for the worker
	over  bool // it has ended, and its rules are being removed
	err   error
	seen  time.Time // when the worker has looked at it last
	lost  int       // rules that have ended by their timeouts since all were written
	begun bool      // its rules have been written
	// restored says that it is of before the start, and that its rules are not known yet.
	restored bool
	rules    network.Program

	saved []byte // what the store has of it; the worker's
}

// heldPacket is a packet that waits for its flow's rules.
type heldPacket struct {
	*network.Held
	at network.PortRef
}

// NewFlows returns Flows without any. Call it before the network runs.
func NewFlows[T any](o FlowOptions[T]) *Flows[T] {
	if o.Most == 0 {
		o.Most = maxFlows
	}
	if o.MostEach == 0 {
		o.MostEach = o.Most / 8
	}
	x := &Flows[T]{
		FlowOptions: o, tasks: tasks.New(), loop: NewLoop(), flows: map[string]*flow[T]{},
		opened: NewShares(), placing: NewShares(), held: NewShares(), rates: newRates(), refused: map[string]uint64{},
	}
	x.queue = newQueue(x.tasks, x.one)
	x.queue.atOnce[asked] = maxPlacing
	o.Rules.OnRemoved = x.removed
	return x
}

// Name implements network.Handler.
func (x *Flows[T]) Name() string { return x.FlowOptions.Name }

// Wake has all flows looked at soon. It does not block.
func (x *Flows[T]) Wake() {
	x.woken.Store(true)
	x.loop.Wake()
}

// Values returns what is known of each flow, by name.
func (x *Flows[T]) Values() map[string]T {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[string]T, len(x.flows))
	for name, f := range x.flows {
		if !f.over {
			out[name] = f.value
		}
	}
	return out
}

// Metrics adds how many flows there are, how many packets are held, and how many could not be.
func (x *Flows[T]) Metrics(m *Metrics) {
	gauge := func(name, help string, s *Shares) {
		m.Gauges(name, help, nil, func(is func(float64, ...string)) {
			x.mu.Lock()
			all := s.All()
			x.mu.Unlock()
			is(float64(all))
		})
	}
	gauge("flows", "Flows that traffic has brought.", &x.opened)
	gauge("flow_packets_held", "Packets that wait for the rules of their flow.", &x.held)
	m.Totals("flow_packets_refused_total", "Packets that went on as if the service were not there, by why.", []string{"why"}, func(is func(float64, ...string)) {
		x.mu.Lock()
		refused := maps.Clone(x.refused)
		x.mu.Unlock()
		for why, n := range refused {
			is(float64(n), why)
		}
	})
}

// HandlePacketIn implements network.Handler.
func (x *Flows[T]) HandlePacketIn(p *network.PacketIn) network.Verdict {
	name, first, ok := x.Identify(p)
	if !ok {
		return network.Continue
	}
	at := network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.flows[name]
	if f != nil && f.begun && !f.over && f.lost == 0 && leads(&f.rules, at) {
		_ = p.Resubmit() // the switch went by an older decision; a packet that no rule leads ends here
		return network.Stop
	}
	if !x.Network.IsEdge(at) {
		return network.Continue // another switch has let it go on
	}
	if why := x.refuse(f, at, p.At); why != "" {
		x.refused[why]++
		return network.Continue
	}
	held, err := p.Hold(holdFor)
	if err != nil {
		x.refused["switch"]++
		return network.Continue
	}
	switch {
	case f == nil:
		f = &flow[T]{name: name, from: at, value: first}
		x.flows[name] = f
		x.opened.Add(at, 1)
	case f.over: // its rules are just being removed; then it is another
		x.opened.Add(f.from, -1)
		x.opened.Add(at, 1)
		f.from, f.value, f.over = at, first, false
	}
	f.held = append(f.held, heldPacket{held, at})
	x.held.Add(at, 1)
	if !f.due {
		f.due = true
		x.placing.Add(f.from, 1)
		if x.running {
			x.queue.add(name, asked)
		}
	}
	return network.Stop
}

// refuse returns why a packet of a flow, nil for a new one, may not be held, or nothing. The lock is held.
func (x *Flows[T]) refuse(f *flow[T], at network.PortRef, now time.Time) string {
	switch {
	case x.ended:
		return "ended"
	case f == nil && !x.opened.Room(at, x.Most, 2*x.MostEach, x.MostEach):
		return "flows"
	case f != nil && len(f.held) >= maxHeldOfFlow, !x.held.Room(at, maxHeld, maxHeld/4, maxHeld/8):
		return "held"
	case f != nil && f.due:
		return ""
	case !x.placing.Room(at, maxPlacing, maxPlacing/4, maxPlacing/8):
		return "placing"
	case !x.rates.allow(at, now):
		return "rate"
	}
	return ""
}

// leads reports whether rules are for packets that come in by a port.
func leads(p *network.Program, at network.PortRef) bool {
	return slices.ContainsFunc(p.Rules, func(r network.Rule) bool {
		in, bound := r.Match.Get(openflow.FieldInPort)
		return r.Switch == at.Switch && (!bound || uint32(in.Uint()) == at.Port)
	})
}

// removed notes that a rule has ended by its timeout.
func (x *Flows[T]) removed(r network.Removed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f := x.flows[r.Name]; f != nil {
		f.lost++
		if x.running {
			x.queue.add(f.name, routine)
		}
	}
}
