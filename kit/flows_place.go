package kit

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
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
	x.queueDue(ctx)
	x.loop.Run(ctx, x.Debounce, flowsRetry, x.queueDue)
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
		x.finish(f, errFlowsEnded)
	}
}

// queueDue queues flows for their workers: those that have failed or are not placed yet, and those
// that are due. Without Due, all are due after Wake, and when they have not been checked for
// flowsEvery.
func (x *Flows[T]) queueDue(context.Context) {
	woken, now := x.woken.Swap(false), time.Now()
	placed := map[string]T{} // Due is called without the lock, for which packets wait
	x.mu.Lock()
	for name, f := range x.flows {
		due := woken || now.Sub(f.checked) >= flowsEvery
		if x.Due != nil {
			due = !f.installed
		}
		switch {
		case due || f.ended || f.err != nil:
			x.queue.add(name, routine)
		case x.Due != nil:
			placed[name] = f.value
		}
	}
	x.mu.Unlock()
	for name, v := range placed {
		if x.Due(v) {
			x.queue.add(name, routine)
		}
	}
	x.signalReady()
}

// syncFlow places or removes one flow. The queue never runs it twice at once for a name.
func (x *Flows[T]) syncFlow(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	x.mu.Lock()
	f := x.flows[name]
	if f == nil || ctx.Err() != nil {
		x.mu.Unlock()
		return
	}
	f.checked = time.Now()
	// An expired rule is not written again: a flow without any timed rule left has ended.
	f.ended = f.ended || f.expired > 0 && len(f.waiting) == 0 && !x.hasTimed(name)
	ended := f.ended
	x.mu.Unlock()
	if !ended {
		ended = x.place(ctx, f)
	}
	if ended {
		x.remove(ctx, f)
	}
	x.signalReady()
}

// hasTimed reports whether a flow has rules with timeouts left.
func (x *Flows[T]) hasTimed(name string) bool {
	return slices.ContainsFunc(x.Rules.Rules(name), func(r network.InstalledRule) bool { return r.Idle > 0 || r.Hard > 0 })
}

// place places a flow and writes its rules. It reports whether the flow has ended instead.
func (x *Flows[T]) place(ctx context.Context, f *flow[T]) (ended bool) {
	x.mu.Lock()
	v, expired := f.value, f.expired
	all := len(f.waiting) > 0 || !f.installed // write expired rules, too
	moves := f.installed
	known, failed := moves || x.adoption.awaits(f.name), f.err != nil
	x.mu.Unlock()
	v, p, err := x.Place(ctx, f.name, v)
	// The record is stored while the rules are written, and before the held packets are sent on. So
	// a flow of which a host has seen a packet has the same value after a restart.
	var storing sync.WaitGroup
	if err == nil && x.Store != nil {
		storing.Go(func() { x.save(ctx, f, v) })
	}
	// An unchanged program is not written, because writing it would restore a rule that expires
	// just now.
	if err == nil && (all || failed || !reflect.DeepEqual(p, f.rules)) {
		now := p
		if !all {
			now.Rules = withoutExpired(p.Rules, f.rules.Rules, x.Rules.Rules(f.name))
		}
		// The first switch is written last, so that no packet overtakes the rules of the others.
		waves := [][]openflow.DatapathID{{}, {f.from.Switch}}
		if x.Waves != nil {
			waves = x.Waves(v, moves)
		}
		err = x.Rules.Apply(ctx, f.name, now, network.ApplyOptions{AllowDown: known, Waves: waves})
	}
	storing.Wait()
	x.mu.Lock()
	f.err = err
	if err != nil {
		if errors.Is(err, ErrFlowEnded) || !known || !moves && time.Now().After(x.restore) || moves && x.Failed != nil && x.Failed(f.value, err) {
			f.ended = true
		}
		x.finish(f, err)
		ended = f.ended
		x.mu.Unlock()
		x.limiter.Info(x.Log, "a flow could not be placed", "handler", x.Name(), "flow", f.name, "error", err)
		return ended
	}
	f.value, f.rules, f.installed = v, p, true
	x.adoption.known(f.name)
	if all {
		f.expired -= expired
		x.finish(f, nil)
	}
	x.mu.Unlock()
	return false
}

// finish ends the work on a flow for which packets or callers of Begin wait. The lock is held.
func (x *Flows[T]) finish(f *flow[T], err error) {
	x.callWaiting(f, err)
	f.slow = false
	if f.late != nil {
		f.late.Stop()
		f.late = nil
	}
	if f.due {
		f.due = false
		x.placing.Add(f.from, -1)
	}
}

// callWaiting calls those who wait for a flow in the order in which they came. The lock is held.
func (x *Flows[T]) callWaiting(f *flow[T], err error) {
	waiting := f.waiting
	f.waiting = nil
	for _, done := range waiting {
		done(f, err)
	}
}

// remove removes the rules of an ended flow, and the flow itself unless a packet has started it
// again. If it fails, it is called again later.
func (x *Flows[T]) remove(ctx context.Context, f *flow[T]) {
	if x.Ended != nil && f.removed == nil {
		f.removed = x.Ended(f.value)
	}
	err := x.Rules.Remove(ctx, f.name)
	if err == nil {
		err = x.deleteRecord(ctx, f)
	}
	if err == nil && f.removed != nil {
		f.removed()
		f.removed = nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	f.err, f.installed, f.expired = err, false, 0
	if err != nil {
		x.limiter.Warn(x.Log, "the rules of an ended flow could not be removed; trying again", "handler", x.Name(), "flow", f.name, "error", err)
		return
	}
	x.adoption.known(f.name)
	if f.ended {
		delete(x.flows, f.name)
		x.opened.Add(f.from, -1)
	}
}

// signalReady tells the ledger once that the rules of all stored flows are known.
func (x *Flows[T]) signalReady() {
	if x.Store != nil {
		x.adoption.signal(x.Rules.Ready)
	}
}
