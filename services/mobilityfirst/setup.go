package mobilityfirst

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
)

const (
	// setupTimeout is how long switches may take for a path. Requests do not wait for longer; what was
	// begun in a switch that is slow takes as long as that does.
	setupTimeout = 2 * time.Second
	// atOnce is how many paths are changed at one time where many are.
	atOnce = 256
)

// setUp brings a new path into the switches.
func (x *paths) setUp(ctx context.Context, p *path) {
	late := time.AfterFunc(setupTimeout, func() { x.tellLate(p) })
	defer late.Stop()
	err := x.change(ctx, p)
	x.settle(p, err)
	if err == nil {
		x.mend(ctx, p) // a link may have gone meanwhile
	}
}

// tellLate has those who wait for a path go on without.
func (x *paths) tellLate(p *path) {
	x.mu.Lock()
	waiting := p.waiting
	p.waiting, p.slow = nil, !p.ready
	x.mu.Unlock()
	for _, then := range waiting {
		then(nil, errSlow)
	}
}

// settle tells those who wait for a path what has become of it.
func (x *paths) settle(p *path, err error) {
	x.mu.Lock()
	waiting := p.waiting
	p.waiting, p.ready = nil, err == nil
	x.making.Add(p.opener, -1)
	if err != nil {
		x.unlink(p)
	}
	x.mu.Unlock()
	for _, then := range waiting {
		then(p, err)
	}
	if err != nil {
		x.withdraw(p)
	}
}

// change has the switches lead a path's frames along the best route.
func (x *paths) change(ctx context.Context, p *path) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	route, ok := x.Network.Topology().Path(p.low.At, p.high.At, x.Metric)
	before := x.route(p)
	switch {
	case p.gone:
		return nil
	case !ok:
		return fmt.Errorf("%v to %v: %w", p.low.At, p.high.At, network.ErrNoPath)
	case slices.Equal(route.Hops, before):
		return nil
	}
	var o network.ApplyOptions
	if before != nil {
		o.Waves = kit.Waves(route.Hops)
	}
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	if err := x.Rules.Apply(ctx, p.key(), network.Program{Rules: PathRules(route.Hops, p.toHigh, p.toLow, p.low.MAC, p.high.MAC)}, o); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	p.hops = route.Hops
	return nil
}

// route is where a path goes.
func (x *paths) route(p *path) []network.Hop {
	x.mu.Lock()
	defer x.mu.Unlock()
	return p.hops
}

// reroute leads paths round what has gone.
func (x *paths) reroute(ctx context.Context) {
	broken := x.list(func(p *path) bool {
		missing, _ := kit.MissingLink(x.Network, p.hops)
		return missing != ""
	})
	tasks.Each(broken, atOnce, func(p *path) { x.mend(ctx, p) })
}

// mend leads a path another way if a link of its own has gone, and again if one of that has gone meanwhile.
func (x *paths) mend(ctx context.Context, p *path) {
	for x.mended(ctx, p) {
	}
}

// mended says whether a path goes another way than before. If there is none it ends, and its hosts will ask
// again; but where a switch has left the controller, which may still lead frames.
func (x *paths) mended(ctx context.Context, p *path) bool {
	x.mu.Lock()
	missing, certain := kit.MissingLink(x.Network, p.hops)
	if missing == "" || p.mending {
		x.mu.Unlock()
		return false
	}
	before := p.hops
	p.mending = true
	x.mu.Unlock()
	err := x.change(ctx, p)
	x.mu.Lock()
	p.mending = false
	ends := err != nil && certain && ctx.Err() == nil
	if ends {
		x.unlink(p)
	}
	x.mu.Unlock()
	if ends {
		x.Log.Debug("a path can't be led another way", "path", p.id, "missing", missing, "error", err)
		x.withdraw(p)
	}
	return err == nil && !slices.Equal(before, x.route(p))
}

// unlink has a path not be found any more.
func (x *paths) unlink(p *path) {
	if x.of[p.ends] != p {
		return
	}
	delete(x.of, p.ends)
	for _, e := range []end{p.low, p.high} {
		if delete(x.by[e.name], p); len(x.by[e.name]) == 0 {
			delete(x.by, e.name)
		}
		if x.ending[e]--; x.ending[e] == 0 {
			delete(x.ending, e)
		}
	}
}

// withdraw takes a path that can't be found out of the switches, and then gives its labels back.
func (x *paths) withdraw(p *path) {
	p.changing.Lock()
	defer p.changing.Unlock()
	if p.gone {
		return
	}
	p.gone = true
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if err := x.Rules.Remove(ctx, p.key()); err != nil {
		x.Log.Debug("removing a path", "path", p.id, "error", err) // the ledger goes on
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.giveBack(p)
	x.opened.Add(p.opener, -1)
}

// expire removes the paths whose lease is over, for as long as the service runs: what it leaves, the next
// does.
func (x *paths) expire(ctx context.Context, now time.Time) {
	over := x.list(func(p *path) bool { return now.Sub(p.until) > leaseGrace })
	tasks.Each(over, atOnce, func(p *path) {
		x.mu.Lock()
		still := now.Sub(p.until) > leaseGrace && ctx.Err() == nil // nobody has asked meanwhile
		if still {
			x.unlink(p)
		}
		x.mu.Unlock()
		if still {
			x.withdraw(p)
		}
	})
}
