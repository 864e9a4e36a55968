package kit

import (
	"cmp"
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
	// maxFlows bounds the flows of a service that sets no bound itself.
	maxFlows = 4096
	// maxHeldOfFlow bounds the held packets of one flow, and maxHeld those of all flows. The
	// packets of one switch may use a quarter of maxHeld, and those of one port an eighth.
	maxHeldOfFlow, maxHeld = 16, 1024
	// maxPlacing bounds the flows that are being placed because of packets. Flows that begin at one
	// switch may use a quarter of it, and those at one port an eighth.
	maxPlacing = 512
	// flowTimeout bounds the work on one flow, and holdFor the time for which a packet is held.
	// holdFor is longer, so that the packets of a flow that cannot be placed are forwarded before
	// their time is over.
	flowTimeout, holdFor = 4 * time.Second, 5 * time.Second
	// flowsRetry is the time between two attempts to place a flow that has failed, and between two
	// calls of Due for a flow. flowsEvery is the interval at which the other flows are checked if
	// Due is nil.
	flowsRetry, flowsEvery = 5 * time.Second, 30 * time.Second
	// restoreFor is the time after the start for which a stored flow that cannot be placed is kept.
	restoreFor = time.Minute
)

// placings holds the rates at which packets may cause flows to be placed.
var placings = PortLimits{Port: EventRate{1000, 1000}, Switch: EventRate{2500, 2500}, All: EventRate{10_000, 10_000}}

// ErrFlowEnded is returned by Place, wrapped or not, when a flow has ended. Flows then removes the
// flow's rules, and the next packet begins another flow. Begin returns it until the rules are removed.
var ErrFlowEnded = errors.New("the flow has ended")

var (
	errFlowSlow   = errors.New("the switches take too long")
	errFlowsBusy  = errors.New("too many flows are being placed")
	errFlowsEnded = errors.New("the service has ended")
)

// FlowOptions configures Flows.
type FlowOptions[T any] struct {
	// Name is the name of the packet-in handler.
	Name string
	// Network reports which ports lead to hosts. Flows begin at these only.
	Network interface{ IsEdge(network.PortRef) bool }
	// Rules owns the flows' rules. If it is a Part, Flows sets its OnRemoved.
	Rules Ledger
	// Store holds the flows over a restart, under keys that begin with Prefix. Flows calls the
	// owner's Ready once the rules of the stored flows are known. If Store is nil, flows are not
	// stored, and the service calls Ready itself.
	Store  store.Store
	Prefix string
	Log    *slog.Logger
	// Identify reports whether a packet belongs to a flow of the service, and returns the flow's
	// name and the value with which it begins. It runs on the switch's goroutine for every packet
	// that a switch sends to the controller, and must not block. If a packet arrives at a port that
	// the flow's rules do not match, as after its host has moved, Place is called again. Identify
	// is not needed if flows begin only with Begin.
	Identify func(p *network.PacketIn) (name string, first T, ok bool)
	// Place decides where a flow goes. It returns the flow's rules and its new value. It is given
	// the value that Identify or Place returned last, also after a restart, and is called again
	// when the network has changed. Calls for several flows run concurrently; ctx has a deadline.
	// If Place returns an error, the flow's packets are forwarded as without the service. If the
	// flow has rules, these stay until it can be placed.
	Place func(ctx context.Context, name string, v T) (T, network.Program, error)
	// MaxFlows bounds the flows; zero means 4096. MaxPerPort bounds the flows whose first packets
	// arrived at one port; zero means an eighth of MaxFlows. The flows of one switch are bounded by
	// twice MaxPerPort.
	MaxFlows, MaxPerPort int

	// Due, if not nil, reports whether Place has to be called for a flow that has been placed. It
	// is called for every flow, often, and must be fast. Without Due, every flow is due after Wake.
	Due func(v T) bool
	// Failed, if not nil, is called after a placed flow could not be placed again. It reports
	// whether the flow ends. Without Failed, the flow keeps its rules. Failed must not call Flows.
	Failed func(v T, err error) (ends bool)
	// Ended, if not nil, is called once when a flow ends, before its rules are removed. The
	// function that Ended returns is called after the rules have been removed.
	Ended func(v T) (removed func())
	// Waves, if not nil, returns the order in which the switches of a flow are written. moves
	// reports whether the flow has rules already. Without Waves, the switch at which the flow
	// begins is written last.
	Waves func(v T, moves bool) [][]openflow.DatapathID
	// Timeout bounds the work on one flow, and the wait for it; zero means four seconds. Debounce
	// is the time for which changes of the network are collected; zero means 50 ms.
	Timeout, Debounce time.Duration
}

// Flows writes rules for flows that begin with packets, or with [Flows.Begin]. It holds the first
// packet of a flow, and those that follow, while Place decides about the flow and its rules are
// written. The packets then go through the switch's tables in the order in which they arrived. A
// packet that arrives just after the rules may overtake them. A slow flow delays no other.
//
// A flow ends when the last of its rules with a timeout has expired, or when Place returns
// ErrFlowEnded. Set Idle and NotifyRemoved in a rule of each direction that keeps a flow alive, as
// [Along] does. If one direction has expired and another has not, all rules are written again when
// the controller receives the next packet.
//
// Flows is a [network.Handler]: add it to the chain, call Run, and call Wake when the network has
// changed. It sees only packets that other rules send to the controller.
type Flows[T any] struct {
	FlowOptions[T]
	tasks   *tasks.Group
	loop    Loop
	queue   *queue // of the flows' names
	woken   atomic.Bool
	limiter lograte.Limit

	mu       sync.Mutex
	flows    map[string]*flow[T]
	opened   Shares // flows, by the port of the first packet
	placing  Shares // flows for which packets or callers of Begin wait
	held     Shares // held packets
	rates    *PortLimiter
	refused  map[string]uint64 // packets that were not held, by reason
	running  bool              // the stored flows have been read, and Run has not returned
	ended    bool              // Run has returned
	restore  time.Time         // until then, stored flows that cannot be placed are kept
	adoption adoption          // of the rules of stored flows
}

// flow is a flow that has not ended, or whose rules are not removed yet. Flows.mu guards it, except
// for the fields that only its worker uses.
type flow[T any] struct {
	name      string
	from      network.PortRef // where its first packet arrived
	value     T
	waiting   []flowWaiter[T]
	due       bool        // the worker has to place it because of packets or callers of Begin
	ended     bool        // it has ended, and its rules are being removed
	late      *time.Timer // ends the wait of callers of Begin, or nil
	slow      bool        // that wait has ended although the flow is not placed yet
	err       error
	checked   time.Time // when the worker last looked at it
	expired   int       // rules that have expired since all were written
	installed bool      // its rules have been written
	rules     network.Program

	// Only the worker uses what follows.
	saved   []byte // its record in the store
	removed func() // what Ended has returned, or nil
}

// flowWaiter is called once a flow's rules are written, or with the reason why they are not.
// Flows.mu is held.
type flowWaiter[T any] func(f *flow[T], err error)

// NewFlows returns Flows that hold no flow yet. Call it before the network runs.
func NewFlows[T any](o FlowOptions[T]) *Flows[T] {
	if o.MaxFlows == 0 {
		o.MaxFlows = maxFlows
	}
	if o.MaxPerPort == 0 {
		o.MaxPerPort = o.MaxFlows / 8
	}
	o.Timeout, o.Debounce = cmp.Or(o.Timeout, flowTimeout), cmp.Or(o.Debounce, reconcileDebounce)
	x := &Flows[T]{
		FlowOptions: o, tasks: tasks.New(), loop: NewLoop(), flows: map[string]*flow[T]{},
		opened: NewShares(), placing: NewShares(), held: NewShares(), rates: NewPortLimiter(placings), refused: map[string]uint64{},
	}
	x.queue = newQueue(x.tasks, x.syncFlow)
	x.queue.workers = [lanes]int{urgent: maxPlacing, routine: maxPlacing / 2}
	if p, ok := o.Rules.(*Part); ok {
		p.OnRemoved = x.removed
	}
	return x
}

// Name implements network.Handler.
func (x *Flows[T]) Name() string { return x.FlowOptions.Name }

// Wake makes Flows check every flow soon. It does not block.
func (x *Flows[T]) Wake() {
	x.woken.Store(true)
	x.loop.Wake()
}

// Values returns the value of each flow, by the flow's name.
func (x *Flows[T]) Values() map[string]T {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[string]T, len(x.flows))
	for name, f := range x.flows {
		if !f.ended {
			out[name] = f.value
		}
	}
	return out
}

// Metrics adds metrics for the number of flows, of held packets, and of packets that were not held
// although they belong to a flow.
func (x *Flows[T]) Metrics(m *Metrics) {
	gauge := func(name, help string, s *Shares) {
		m.Gauges(name, help, nil, func(emit func(float64, ...string)) {
			x.mu.Lock()
			all := s.All()
			x.mu.Unlock()
			emit(float64(all))
		})
	}
	gauge("flows", "Flows that have begun and not ended.", &x.opened)
	gauge("flow_packets_held", "Packets that wait for the rules of their flow.", &x.held)
	m.Totals("flow_packets_refused_total", "Packets of flows that were forwarded as without the service, by reason.", []string{"why"}, func(emit func(float64, ...string)) {
		x.mu.Lock()
		refused := maps.Clone(x.refused)
		x.mu.Unlock()
		for why, n := range refused {
			emit(float64(n), why)
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
	if f != nil && f.installed && !f.ended && f.expired == 0 && hasRuleAt(&f.rules, at) {
		_ = p.Resubmit() // the switch used an older decision; a packet that no rule matches is dropped
		return network.Stop
	}
	if !x.Network.IsEdge(at) {
		return network.Continue // another switch has forwarded it
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
		f = x.add(name, at, first)
	case f.ended: // its rules are being removed, and then another flow begins
		x.opened.Add(f.from, -1)
		x.opened.Add(at, 1)
		f.from, f.value, f.ended = at, first, false
	}
	x.held.Add(at, 1)
	x.await(f, func(f *flow[T], err error) {
		x.held.Add(at, -1)
		send := held.Forward
		if err == nil && hasRuleAt(&f.rules, at) {
			send = held.Release
		}
		if err := send(); err != nil {
			x.limiter.Info(x.Log, "a held packet is lost", "handler", x.Name(), "flow", f.name, "error", err)
		}
	})
	return network.Stop
}

// add adds a flow. The lock is held.
func (x *Flows[T]) add(name string, from network.PortRef, first T) *flow[T] {
	f := &flow[T]{name: name, from: from, value: first}
	x.flows[name] = f
	x.opened.Add(from, 1)
	return f
}

// await adds a waiter to a flow, and has the flow placed soon. The lock is held.
func (x *Flows[T]) await(f *flow[T], w flowWaiter[T]) {
	f.waiting = append(f.waiting, w)
	if f.due {
		return
	}
	f.due = true
	x.placing.Add(f.from, 1)
	if x.running {
		x.queue.add(f.name, urgent)
	}
}

// Room returns the reason why no flow may begin at a port with Begin, or nil.
func (x *Flows[T]) Room(from network.PortRef) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.room(from)
}

func (x *Flows[T]) room(from network.PortRef) error {
	switch {
	case x.ended:
		return errFlowsEnded
	case !x.opened.Room(from, x.MaxFlows, 2*x.MaxPerPort, x.MaxPerPort):
		return ErrFull
	case !x.placing.Room(from, maxPlacing, maxPlacing/4, maxPlacing/8):
		return errFlowsBusy
	}
	return nil
}

// Begin returns the value of a flow whose rules are written, and true. Otherwise it begins the flow
// with the value first, unless it has begun, and returns false: done is then called once the rules
// are written, or with the reason why they are not. If too many callers wait for the flow, done is
// never called. done must not block or call Flows. from is the port of the host that causes the
// flow.
func (x *Flows[T]) Begin(name string, from network.PortRef, first T, done func(v T, err error)) (v T, placed bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.flows[name]
	switch {
	case f == nil:
		if err := x.room(from); err != nil {
			return first, false, err
		}
		f = x.add(name, from, first)
	case f.ended:
		return f.value, false, ErrFlowEnded
	case f.installed:
		return f.value, true, nil
	case f.slow:
		return f.value, false, errFlowSlow
	case len(f.waiting) >= maxHeldOfFlow:
		return f.value, false, nil
	}
	if f.late == nil {
		f.late = time.AfterFunc(x.Timeout, func() { x.endWait(f) })
	}
	x.await(f, func(f *flow[T], err error) { done(f.value, err) })
	return f.value, false, nil
}

// endWait ends the wait for a flow whose switches are slow. The work on the flow goes on.
func (x *Flows[T]) endWait(f *flow[T]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f.slow = f.due
	x.callWaiting(f, errFlowSlow)
}

// Check makes Flows look at one flow now. It does not block.
func (x *Flows[T]) Check(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.running {
		x.queue.add(name, urgent)
	}
}

// Value returns the value of a flow that has rules, and reports whether there is one.
func (x *Flows[T]) Value(name string) (v T, placed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f := x.flows[name]; f != nil {
		return f.value, f.installed && !f.ended
	}
	return v, false
}

// Len returns the number of flows that have begun and whose rules have not been removed.
func (x *Flows[T]) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.opened.All()
}

// refuse returns why a packet may not be held, or "" if it may. f is the packet's flow, nil for a
// new one. The lock is held.
func (x *Flows[T]) refuse(f *flow[T], at network.PortRef, now time.Time) string {
	switch {
	case x.ended:
		return "ended"
	case f == nil && !x.opened.Room(at, x.MaxFlows, 2*x.MaxPerPort, x.MaxPerPort):
		return "flows"
	case f != nil && len(f.waiting) >= maxHeldOfFlow, !x.held.Room(at, maxHeld, maxHeld/4, maxHeld/8):
		return "held"
	case f != nil && f.due:
		return ""
	case !x.placing.Room(at, maxPlacing, maxPlacing/4, maxPlacing/8):
		return "placing"
	case !x.rates.Allow(at, now):
		return "rate"
	}
	return ""
}

// hasRuleAt reports whether a program has a rule for packets that arrive at a port.
func hasRuleAt(p *network.Program, at network.PortRef) bool {
	return slices.ContainsFunc(p.Rules, func(r network.Rule) bool {
		in, bound := r.Match.Get(openflow.FieldInPort)
		return r.Switch == at.Switch && (!bound || uint32(in.Uint()) == at.Port)
	})
}

// removed handles a rule that has expired.
func (x *Flows[T]) removed(r network.Removed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f := x.flows[r.Name]; f != nil {
		f.expired++
		if x.running {
			x.queue.add(f.name, routine)
		}
	}
}
