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
	x.loop.Run(ctx, reconcileDebounce, flowsRetry, x.queueDue)
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
		x.sendHeld(f, false)
	}
}

// queueDue queues flows for their workers: every flow after Wake, and otherwise those that have
// failed or have not been checked for flowsEvery.
func (x *Flows[T]) queueDue(context.Context) {
	woken, now := x.woken.Swap(false), time.Now()
	x.mu.Lock()
	for name, f := range x.flows {
		if woken || f.ended || f.err != nil || now.Sub(f.checked) >= flowsEvery {
			x.queue.add(name, routine)
		}
	}
	x.mu.Unlock()
	x.signalReady()
}

// syncFlow places or removes one flow. The queue never runs it twice at once for a name.
func (x *Flows[T]) syncFlow(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, flowTimeout)
	defer cancel()
	x.mu.Lock()
	f := x.flows[name]
	if f == nil || ctx.Err() != nil {
		x.mu.Unlock()
		return
	}
	f.checked = time.Now()
	// An expired rule is not written again: a flow without any timed rule left has ended.
	f.ended = f.ended || f.expired > 0 && len(f.held) == 0 && !x.hasTimed(name)
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
	all := len(f.held) > 0 || !f.installed // write expired rules, too
	known, failed := f.installed || f.restored, f.err != nil
	x.mu.Unlock()
	v, p, err := x.Place(ctx, f.name, v)
	// The record is stored while the rules are written, and before packets go on: who has seen a
	// packet of a flow finds it with the same value after a restart.
	var storing sync.WaitGroup
	if err == nil {
		storing.Go(func() { x.save(ctx, f, v) })
	}
	// An unchanged program is not written: that would restore a rule that expires just now.
	if err == nil && (all || failed || !reflect.DeepEqual(p, f.rules)) {
		now := p
		if !all {
			now.Rules = withoutExpired(p.Rules, f.rules.Rules, x.Rules.Rules(f.name))
		}
		// The first switch is written last, so that no packet overtakes the rules of the others.
		err = x.Rules.Apply(ctx, f.name, now, network.ApplyOptions{AllowDown: known, Waves: [][]openflow.DatapathID{{}, {f.from.Switch}}})
	}
	storing.Wait()
	x.mu.Lock()
	f.err = err
	if err != nil {
		x.sendHeld(f, false)
		if errors.Is(err, ErrFlowEnded) || !known || !f.installed && time.Now().After(x.restore) {
			f.ended = true
		}
		ended = f.ended
		x.mu.Unlock()
		x.limiter.Info(x.Log, "a flow could not be placed", "service", x.Name(), "flow", f.name, "error", err)
		return ended
	}
	f.value, f.rules, f.installed = v, p, true
	x.markKnown(f)
	if all {
		f.expired -= expired
		x.sendHeld(f, true)
	}
	x.mu.Unlock()
	return false
}

// sendHeld sends the packets that a flow holds in the order in which they arrived: through the
// switch's tables if released is true and a rule matches them, or else by default forwarding. The
// lock is held.
func (x *Flows[T]) sendHeld(f *flow[T], released bool) {
	for _, h := range f.held {
		x.held.Add(h.at, -1)
		send := h.Forward
		if released && hasRuleAt(&f.rules, h.at) {
			send = h.Release
		}
		if err := send(); err != nil {
			x.limiter.Info(x.Log, "a held packet is lost", "service", x.Name(), "flow", f.name, "error", err)
		}
	}
	f.held = nil
	if f.due {
		f.due = false
		x.placing.Add(f.from, -1)
	}
}

// remove removes the rules of an ended flow, and the flow itself unless a packet has started it
// again. If it fails, it is called again later.
func (x *Flows[T]) remove(ctx context.Context, f *flow[T]) {
	err := x.Rules.Remove(ctx, f.name)
	if err == nil {
		err = x.deleteRecord(ctx, f)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	f.err, f.installed, f.expired = err, false, 0
	if err != nil {
		x.limiter.Warn(x.Log, "the rules of an ended flow could not be removed; trying again", "service", x.Name(), "flow", f.name, "error", err)
		return
	}
	x.markKnown(f)
	if f.ended {
		delete(x.flows, f.name)
		x.opened.Add(f.from, -1)
	}
}

// markKnown records that the rules of a flow are known. The lock is held.
func (x *Flows[T]) markKnown(f *flow[T]) {
	if f.restored {
		f.restored = false
		x.restored--
	}
}

// signalReady calls the Ready of the rules' owner once the rules of all stored flows are known.
func (x *Flows[T]) signalReady() {
	x.mu.Lock()
	known := x.running && x.restored == 0
	x.mu.Unlock()
	if known {
		x.ready.Do(x.Rules.Ready)
	}
}
