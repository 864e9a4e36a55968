package kit

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Run reads the stored flows, and serves flows until ctx ends. Packets that are held then are
// forwarded as without the service, and rules stay in the switches.
func (x *Flows[T]) Run(ctx context.Context) error {
	defer x.stop()
	stop := context.AfterFunc(ctx, x.tasks.Cancel)
	defer stop()
	if err := x.load(ctx); err != nil {
		return err
	}
	x.woken.Store(true)
	x.all(ctx)
	x.loop.Run(ctx, reconcileDebounce, flowsRetry, x.all)
	return nil
}

// stop ends the workers and forwards held packets.
func (x *Flows[T]) stop() {
	x.mu.Lock()
	x.ended, x.running = true, false
	x.mu.Unlock()
	x.tasks.Stop()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.flows {
		x.pass(f, false)
	}
}

// all queues flows for their workers: every flow after Wake, and otherwise those of which something
// has failed and those that are due for a look.
func (x *Flows[T]) all(context.Context) {
	woken, now := x.woken.Swap(false), time.Now()
	x.mu.Lock()
	for name, f := range x.flows {
		if woken || f.over || f.err != nil || now.Sub(f.seen) >= flowsEvery {
			x.queue.add(name, routine)
		}
	}
	x.mu.Unlock()
	x.settle()
}

// one brings the network in step with one flow. The queue never runs it twice at once for a name.
func (x *Flows[T]) one(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, flowTimeout)
	defer cancel()
	x.mu.Lock()
	f := x.flows[name]
	if f == nil || ctx.Err() != nil {
		x.mu.Unlock()
		return
	}
	f.seen = time.Now()
	// An expired rule is not written again: a flow without any timed rule left has ended.
	f.over = f.over || f.lost > 0 && len(f.held) == 0 && !x.hasTimed(name)
	over := f.over
	x.mu.Unlock()
	if !over {
		over = x.place(ctx, f)
	}
	if over {
		x.remove(ctx, f)
	}
	x.settle()
}

// hasTimed reports whether a flow has rules with timeouts left.
func (x *Flows[T]) hasTimed(name string) bool {
	return slices.ContainsFunc(x.Rules.Rules(name), func(r network.InstalledRule) bool { return r.Idle > 0 || r.Hard > 0 })
}

// place places a flow and writes its rules. It reports whether the flow is over instead.
func (x *Flows[T]) place(ctx context.Context, f *flow[T]) (over bool) {
	x.mu.Lock()
	v, lost := f.value, f.lost
	all := len(f.held) > 0 || !f.begun // write expired rules, too
	known, failed := f.begun || f.restored, f.err != nil
	x.mu.Unlock()
	v, p, err := x.Place(ctx, f.name, v)
	// An unchanged program is not written: that would restore a rule that expires just now.
	if err == nil && (all || failed || !reflect.DeepEqual(p, f.rules)) {
		now := p
		if !all {
			now.Rules = withoutEnded(p.Rules, f.rules.Rules, x.Rules.Rules(f.name))
		}
		// The first switch is written last, so that no packet overtakes the rules of the others.
		err = x.Rules.Apply(ctx, f.name, now, network.ApplyOptions{AllowDown: known, Waves: [][]openflow.DatapathID{{}, {f.from.Switch}}})
	}
	x.mu.Lock()
	f.err = err
	if err != nil {
		x.pass(f, false)
		if errors.Is(err, ErrFlowEnded) || !known || !f.begun && time.Now().After(x.restore) {
			f.over = true
		}
		over = f.over
		x.mu.Unlock()
		x.limiter.Info(x.Log, "a flow is not placed", "service", x.Name(), "flow", f.name, "error", err)
		return over
	}
	f.value, f.rules, f.begun = v, p, true
	x.found(f)
	if all {
		f.lost -= lost
		x.pass(f, true)
	}
	x.mu.Unlock()
	x.save(ctx, f)
	return false
}

// pass sends on the packets that a flow holds, in the order in which they arrived: through the
// switch's tables if released is true and a rule matches them, or else by default forwarding. The
// lock is held.
func (x *Flows[T]) pass(f *flow[T], released bool) {
	for _, h := range f.held {
		x.held.Add(h.at, -1)
		way := h.Forward
		if released && leads(&f.rules, h.at) {
			way = h.Release
		}
		if err := way(); err != nil {
			x.limiter.Info(x.Log, "a held packet is lost", "service", x.Name(), "flow", f.name, "error", err)
		}
	}
	f.held = nil
	if f.due {
		f.due = false
		x.placing.Add(f.from, -1)
	}
}

// remove removes the rules of a flow that is over, and the flow itself unless a packet has begun it
// anew. It is called again if it fails.
func (x *Flows[T]) remove(ctx context.Context, f *flow[T]) {
	err := x.Rules.Remove(ctx, f.name)
	if err == nil {
		err = x.unsave(ctx, f)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	f.err, f.begun, f.lost = err, false, 0
	if err != nil {
		x.limiter.Warn(x.Log, "the rules of a flow that has ended are not removed yet; it is tried again", "service", x.Name(), "flow", f.name, "error", err)
		return
	}
	x.found(f)
	if f.over {
		delete(x.flows, f.name)
		x.opened.Add(f.from, -1)
	}
}

// found records that the rules of a flow are known. The lock is held.
func (x *Flows[T]) found(f *flow[T]) {
	if f.restored {
		f.restored = false
		x.restored--
	}
}

// settle calls the Ready of the rules' owner once the rules of all stored flows are known.
func (x *Flows[T]) settle() {
	x.mu.Lock()
	known := x.running && x.restored == 0
	x.mu.Unlock()
	if known {
		x.ready.Do(x.Rules.Ready)
	}
}
