package subflows

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// placer changes the paths of subflows.
type placer struct {
	Options
	chooser chooser
	metrics *metrics
	records kit.Records[stored]
	ctx     context.Context // ends with the service
	// choosing is held while a path is chosen, because each choice depends on those before it.
	choosing sync.Mutex
	// These limit log lines that hosts can cause at will.
	warnLimit, infoLimit lograte.Limit
	// promises runs the update of the meters that subflows pass, and watches the readings of the
	// paths of watched subflows.
	promises, watches kit.Loop
	watched           watchList
}

// place forwards a new subflow along the next path of its connection. The caller has locked
// f.changing.
func (c *placer) place(f *subflow) {
	defer f.changing.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, placeTimeout)
	defer cancel()
	var waiting []Held
	next, err := c.nextPath(f)
	if err == nil {
		waiting, err = c.route(ctx, f, next.hops, false)
	}
	if err != nil {
		c.giveUp(f, err)
		return
	}
	c.chooser.flows.donePlacing(f)
	for _, held := range waiting {
		if err := held.Release(); err != nil {
			c.warnLimit.Warn(c.Log, "releasing a SYN", "subflow", f.Header, "error", err)
		}
	}
	c.metrics.countOutcome(f, outcomePlaced)
	c.metrics.setup.Observe(time.Since(f.Since).Seconds())
	c.watchNew(f)
	c.Publish("subflow.placed", f.record())
	c.save(f)
}

// nextPath gives a subflow the next path of its connection.
func (c *placer) nextPath(f *subflow) (found, error) {
	c.choosing.Lock()
	defer c.choosing.Unlock()
	return c.chooser.nextPath(f, c.Network.Topology(), time.Now(), func(hops []network.Hop) bool {
		missing, _ := kit.MissingLink(c.Network, hops)
		return missing == ""
	})
}

// widestPath chooses the widest path for a subflow at present, and counts the subflow on it from
// then on.
func (c *placer) widestPath(f *subflow) (found, error) {
	c.choosing.Lock()
	defer c.choosing.Unlock()
	now := time.Now()
	to, err := c.chooser.widestPath(f, c.Network.Topology(), now)
	if err == nil {
		c.chooser.loads.start(f.id, to, now)
	}
	return to, err
}

// widerPath chooses a path that gives a subflow more than the given rate, which it has on its
// present path, where the link from at is full. It reports whether there is one, and counts the
// subflow on it from then on.
func (c *placer) widerPath(f *subflow, at network.PortRef, rate uint64, now time.Time) (found, bool) {
	c.choosing.Lock()
	defer c.choosing.Unlock()
	to, ok := c.chooser.widerPath(f, at, rate, c.Network.Topology(), now)
	if ok {
		c.chooser.loads.start(f.id, to, now)
	}
	return to, ok
}

// route forwards a subflow along a path, and returns the SYNs that have waited for it. If it fails,
// the subflow is no longer counted on that path.
func (c *placer) route(ctx context.Context, f *subflow, hops []network.Hop, allowDown bool) (waiting []Held, err error) {
	promised := c.promisedLinks(hops)
	c.Guard.Ensure(ctx, promised)
	held := c.meteredLinks(hops)
	if err := c.install(ctx, f, hops, held, allowDown); err != nil {
		c.chooser.loads.remove(hops)
		c.chooser.loads.expectNothing(f.id)
		return nil, err
	}
	c.chooser.bookYielding(f, hops)
	waiting = f.setPath(hops, held)
	if !slices.Equal(promised, c.promisedLinks(hops)) { // updateAllMeters could not see the subflow on this path before
		c.promises.Wake()
	}
	return waiting, nil
}

// install writes the rules of a path. On the links that held lists, packets pass a meter.
func (c *placer) install(ctx context.Context, f *subflow, hops []network.Hop, held []reserve.Link, allowDown bool) error {
	return c.Rules.Apply(ctx, f.key(), pathRules(f.Header, hops, c.Idle, c.meter(held)), network.ApplyOptions{Waves: kit.Waves(hops), AllowDown: allowDown})
}

// pathRules returns the rules that forward a subflow along a path. meter returns the meter
// that traffic out of a port has to pass, zero for none; a nil function means that there
// are no meters.
func pathRules(h match.Header, hops []network.Hop, idle time.Duration, meter func(network.PortRef) uint32) network.Program {
	led := flowpath.Forwarding{Header: h, Hops: hops, Stage: network.StageRoute, Offset: rule.RouteSubflow, Idle: idle, Meter: meter}
	return network.Program{Rules: led.Rules()}
}

// FlowRules returns the rules, along a path, of the subflow that a packet belongs to. It returns
// false if the packet belongs to none.
func FlowRules(h *packet.Headers, path network.Path, idle time.Duration) (network.Program, bool) {
	f, ok := match.HeaderOf(h)
	if !ok || f.Proto != packet.ProtoTCP {
		return network.Program{}, false
	}
	return pathRules(f, path.Hops, idle, nil), true
}

// giveUp leaves a subflow that cannot be placed to default forwarding.
func (c *placer) giveUp(f *subflow, why error) {
	ctx, cancel := c.cleanUp()
	defer cancel()
	c.removeRules(ctx, f)
	waiting := f.markFailed()
	c.chooser.flows.donePlacing(f)
	for _, held := range waiting {
		if err := held.Output(unmarked); err != nil {
			c.warnLimit.Warn(c.Log, "forwarding a SYN", "subflow", f.Header, "error", err)
		}
	}
	c.metrics.countOutcome(f, outcomeFailed)
	c.warnLimit.Warn(c.Log, "a subflow goes by default forwarding", "subflow", f.Header, "error", why)
	c.Publish("subflow.failed", map[string]any{"flow": f.Header.String(), "reason": why.Error()})
}

// cleanUp returns a context for cleaning up. It is not cancelled when the service ends.
func (c *placer) cleanUp() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.ctx), placeTimeout)
}

func (c *placer) removeRules(ctx context.Context, f *subflow) {
	if err := c.Rules.Remove(ctx, f.key()); err != nil {
		c.warnLimit.Warn(c.Log, "removing the rules of a subflow", "subflow", f.Header, "error", err)
	}
}

// move forwards a subflow along another path that was chosen for it. It installs the new
// rules before it removes the old ones. f.changing is locked.
func (c *placer) move(ctx context.Context, f *subflow, to found, why string) {
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	old := f.path()
	if old == nil || slices.Equal(old, to.hops) {
		c.chooser.loads.remove(to.hops)
		c.chooser.loads.expectNothing(f.id)
		return
	}
	if _, err := c.route(ctx, f, to.hops, true); err != nil {
		c.warnLimit.Warn(c.Log, "a subflow could not be moved", "subflow", f.Header, "error", err)
		return
	}
	c.chooser.loads.remove(old)
	c.metrics.moves.Inc()
	c.infoLimit.Info(c.Log, "a subflow has been moved", "subflow", f.Header, "because", why)
	c.Publish("subflow.moved", map[string]any{"cause": why, "subflow": f.record()})
	c.save(f)
}

// end removes a subflow with its rules and its record. why is the reason in the event.
func (c *placer) end(f *subflow, why string) {
	f.changing.Lock()
	defer f.changing.Unlock()
	hops := f.path()
	if now, _ := f.markEnded(); !now {
		return
	}
	ctx, cancel := c.cleanUp()
	defer cancel()
	c.removeRules(ctx, f)
	c.chooser.releaseYielding(f)
	c.chooser.loads.remove(hops)
	c.chooser.loads.expectNothing(f.id)
	if err := c.records.Delete(ctx, f.id); err != nil {
		c.warnLimit.Warn(c.Log, "a subflow stays stored", "subflow", f.Header, "error", err)
	}
	c.chooser.flows.remove(f) // only now may a SYN start the subflow anew, under the same keys
	r := f.record()
	r.Reason = why
	c.Publish("subflow.ended", r)
}

const storePrefix = "qos/subflows/"

// save stores the path of a subflow. f.changing is locked.
func (c *placer) save(f *subflow) {
	f.mu.Lock()
	r, held := f.stored, f.metered
	f.mu.Unlock()
	r.Meters = c.Guard.Stored(held)
	ctx, cancel := c.cleanUp()
	defer cancel()
	if err := c.records.Put(ctx, f.id, r); err != nil {
		c.warnLimit.Warn(c.Log, "a subflow is not stored: a restart would forget its path", "subflow", f.Header, "error", err)
	}
}

// load reads the subflows of an earlier controller.
func (c *placer) load(ctx context.Context) error {
	return c.records.Load(ctx, func(id string, r stored) error {
		f := &subflow{id: id, placed: true, stored: r}
		if len(f.Hops) == 0 || f.id != identify(f.Header) {
			return fmt.Errorf("a path of %d switches, of %v", len(f.Hops), f.Header)
		}
		c.chooser.flows.mu.Lock()
		c.chooser.flows.add(f)
		c.chooser.flows.mu.Unlock()
		c.chooser.loads.add(f.Hops)
		c.chooser.bookYielding(f, f.Hops)
		c.Guard.Restore(ctx, f.Meters)
		for _, m := range f.Meters {
			f.metered = append(f.metered, m.Link)
		}
		return nil
	})
}

// redeclare declares the rules of an earlier controller's subflows. A switch that is not connected
// yet is compared with these rules when it connects, and keeps the rules that it still has.
func (c *placer) redeclare(ctx context.Context) {
	each(c.chooser.flows.all(), func(f *subflow) {
		f.changing.Lock()
		defer f.changing.Unlock()
		if hops, held := f.pathAndMeters(); hops != nil {
			if err := c.install(ctx, f, hops, held, true); err != nil {
				c.warnLimit.Warn(c.Log, "a subflow of before the start is not declared", "subflow", f.Header, "error", err)
			}
		}
	})
}
