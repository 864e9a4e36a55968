package subflow

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/qos/match"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/qos/way"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store"
)

// placer changes where subflows go.
type placer struct {
	Options
	choice
	metrics *metrics
	ctx     context.Context // that of the service
	// choosing has paths chosen one after the other: each knows what those before it were given.
	choosing sync.Mutex
	// Hosts can cause as many of these lines as they like.
	failures, moves lograte.Limit
	// promises looks for subflows that have to be held back.
	promises service.Loop
}

// place leads a new subflow along the next path of its connection. The caller has locked
// f.changing.
func (c *placer) place(f *subflow) {
	defer f.changing.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, placeFor)
	defer cancel()
	var waiting []Held
	next, err := c.next(f)
	if err == nil {
		waiting, err = c.lead(ctx, f, next.hops, false)
	}
	if err != nil {
		c.giveUp(f, err)
		return
	}
	c.flows.donePlacing(f)
	for _, held := range waiting {
		if err := held.Release(); err != nil {
			c.failures.Warn(c.Log, "releasing a SYN", "subflow", f.Header, "error", err)
		}
	}
	c.metrics.became(f, outcomePlaced)
	c.metrics.setup.Observe(time.Since(f.Since).Seconds())
	c.Publish("subflow.placed", f.record())
	c.save(f)
}

// next gives a subflow the next path of its connection.
func (c *placer) next(f *subflow) (found, error) {
	c.choosing.Lock()
	defer c.choosing.Unlock()
	return c.choice.next(f, c.Network.Topology(), time.Now(), func(hops []network.Hop) bool {
		missing, _ := service.MissingLink(c.Network, hops)
		return missing == ""
	})
}

// other chooses the widest path that there is for a subflow now: it counts there, too, from then on.
func (c *placer) other(f *subflow) (found, error) {
	c.choosing.Lock()
	defer c.choosing.Unlock()
	now := time.Now()
	to, err := c.choice.other(f, c.Network.Topology(), now)
	if err == nil {
		c.loads.begin(to, now)
	}
	return to, err
}

// better chooses a path that gives a subflow more than one with a full link, if there is one.
func (c *placer) better(f *subflow, at network.PortRef, now time.Time) (found, bool) {
	c.choosing.Lock()
	defer c.choosing.Unlock()
	to, ok := c.choice.better(f, at, c.Network.Topology(), now)
	if ok {
		c.loads.begin(to, now)
	}
	return to, ok
}

// lead has a subflow go along a path, and returns the SYNs that have waited for it. Where it fails
// nothing goes along that path any more.
func (c *placer) lead(ctx context.Context, f *subflow, hops []network.Hop, allowDown bool) (waiting []Held, err error) {
	promised := c.promised(hops)
	c.Guard.Ensure(ctx, promised)
	held := c.held(hops)
	if err := c.install(ctx, f, hops, held, allowDown); err != nil {
		c.loads.leave(hops)
		return nil, err
	}
	c.yield(f, hops)
	waiting = f.enter(hops, held)
	if !slices.Equal(promised, c.promised(hops)) { // nobody has seen the subflow there until now
		c.promises.Wake()
	}
	return waiting, nil
}

// install writes the rules of a path, on some links of which a meter has to be passed.
func (c *placer) install(ctx context.Context, f *subflow, hops []network.Hop, held []reserve.Link, allowDown bool) error {
	return c.Rules.Apply(ctx, f.key(), program(f.Header, hops, c.Idle, c.meter(held)), network.ApplyOptions{Waves: service.Waves(hops), AllowDown: allowDown})
}

// program leads a subflow along a path. meter gives the meter that traffic out of a port has to
// pass, zero for none; nil where there is none at all.
func program(h match.Header, hops []network.Hop, idle time.Duration, meter func(network.PortRef) uint32) network.Program {
	led := way.Lead{Header: h, Hops: hops, Stage: network.StageRoute, Offset: rule.RouteSubflow, Idle: idle, Meter: meter}
	return network.Program{Rules: led.Rules()}
}

// FlowRules are those of the subflow that a packet belongs to, along a path; false if it
// belongs to none.
func FlowRules(h *packet.Headers, path network.Path, idle time.Duration) (network.Program, bool) {
	f, ok := match.HeaderOf(h)
	if !ok || f.Proto != packet.ProtoTCP {
		return network.Program{}, false
	}
	return program(f, path.Hops, idle, nil), true
}

// giveUp lets a subflow that cannot be placed go by default forwarding.
func (c *placer) giveUp(f *subflow, why error) {
	ctx, cancel := c.cleanUp()
	defer cancel()
	c.unwrite(ctx, f)
	waiting := f.fail()
	c.flows.donePlacing(f)
	for _, held := range waiting {
		if err := held.Output(unmarked); err != nil {
			c.failures.Warn(c.Log, "forwarding a SYN", "subflow", f.Header, "error", err)
		}
	}
	c.metrics.became(f, outcomeFailed)
	c.failures.Warn(c.Log, "a subflow goes by default forwarding", "subflow", f.Header, "error", why)
	c.Publish("subflow.failed", map[string]any{"flow": f.Header.String(), "reason": why.Error()})
}

// cleanUp is the time for putting things in order, which the end of the service does not cut
// short.
func (c *placer) cleanUp() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.ctx), placeFor)
}

func (c *placer) unwrite(ctx context.Context, f *subflow) {
	if err := c.Rules.Remove(ctx, f.key()); err != nil {
		c.failures.Warn(c.Log, "removing the rules of a subflow", "subflow", f.Header, "error", err)
	}
}

// move leads a subflow along another path, which has been chosen for it, the new rules before the
// old ones go. f.changing is locked.
func (c *placer) move(ctx context.Context, f *subflow, to found, why string) {
	ctx, cancel := context.WithTimeout(ctx, placeFor)
	defer cancel()
	old := f.path()
	if old == nil || slices.Equal(old, to.hops) {
		c.loads.leave(to.hops)
		return
	}
	if _, err := c.lead(ctx, f, to.hops, true); err != nil {
		c.failures.Warn(c.Log, "a subflow could not be moved", "subflow", f.Header, "error", err)
		return
	}
	c.loads.leave(old)
	c.metrics.moves.Inc()
	c.moves.Info(c.Log, "a subflow has been moved", "subflow", f.Header, "because", why)
	c.Publish("subflow.moved", map[string]any{"cause": why, "subflow": f.record()})
	c.save(f)
}

// end takes a subflow out: its rules and its record.
func (c *placer) end(f *subflow, why string) {
	f.changing.Lock()
	defer f.changing.Unlock()
	hops := f.path()
	if now, _ := f.end(); !now {
		return
	}
	ctx, cancel := c.cleanUp()
	defer cancel()
	c.unwrite(ctx, f)
	c.unyield(f)
	c.loads.leave(hops)
	if err := c.Store.Delete(ctx, storePrefix+f.id); err != nil && !errors.Is(err, store.ErrNotFound) {
		c.failures.Warn(c.Log, "a subflow stays stored", "subflow", f.Header, "error", err)
	}
	c.flows.remove(f) // only now may a SYN begin it anew, under the same names
	r := f.record()
	r.Reason = why
	c.Publish("subflow.ended", r)
}
