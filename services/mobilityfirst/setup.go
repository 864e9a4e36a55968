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
	// setupTimeout is how long switches may take to install a path. Requests wait no longer; a
	// change that has begun at a slow switch takes as long as the switch does.
	setupTimeout = 2 * time.Second
	// maxParallel limits the paths that are changed at one time.
	maxParallel = 256
)

// setUp installs the rules of a new path.
func (x *paths) setUp(ctx context.Context, p *path) {
	late := time.AfterFunc(setupTimeout, func() { x.timeOut(p) })
	defer late.Stop()
	err := x.install(ctx, p)
	x.finish(p, err)
	if err == nil {
		x.repair(ctx, p) // a link may have failed meanwhile
	}
}

// timeOut lets the requests that wait for a path continue without it.
func (x *paths) timeOut(p *path) {
	x.mu.Lock()
	waiting := p.waiting
	p.waiting, p.slow = nil, !p.ready
	x.mu.Unlock()
	for _, done := range waiting {
		done(nil, errSlow)
	}
}

// finish records the result of a path's setup and passes it to the waiting requests.
func (x *paths) finish(p *path, err error) {
	x.mu.Lock()
	waiting := p.waiting
	p.waiting, p.ready = nil, err == nil
	x.settingUp.Add(p.opener, -1)
	if err != nil {
		x.unregister(p)
	}
	x.mu.Unlock()
	for _, done := range waiting {
		done(p, err)
	}
	if err != nil {
		x.remove(p)
	}
}

// install writes the rules that forward a path's frames along the best route.
func (x *paths) install(ctx context.Context, p *path) error {
	p.changeMu.Lock()
	defer p.changeMu.Unlock()
	route, ok := x.Network.Topology().Path(p.low.At, p.high.At, x.Metric)
	before := x.currentHops(p)
	switch {
	case p.removed:
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

// currentHops returns the hops of a path's installed route.
func (x *paths) currentHops(p *path) []network.Hop {
	x.mu.Lock()
	defer x.mu.Unlock()
	return p.hops
}

// rerouteBroken reroutes the paths whose links have failed.
func (x *paths) rerouteBroken(ctx context.Context) {
	broken := x.readyPaths(func(p *path) bool {
		missing, _ := kit.MissingLink(x.Network, p.hops)
		return missing != ""
	})
	tasks.Each(broken, maxParallel, func(p *path) { x.repair(ctx, p) })
}

// repair reroutes a path while links on its route are missing: a link of the new route may have
// failed meanwhile.
func (x *paths) repair(ctx context.Context, p *path) {
	for x.repairOnce(ctx, p) {
	}
}

// repairOnce reports whether it has moved a path to another route. If there is no other route the
// path ends, and its hosts ask again. But if its switch has only left the controller, the path
// stays, because the switch may still forward frames.
func (x *paths) repairOnce(ctx context.Context, p *path) bool {
	x.mu.Lock()
	missing, certain := kit.MissingLink(x.Network, p.hops)
	if missing == "" || p.rerouting {
		x.mu.Unlock()
		return false
	}
	before := p.hops
	p.rerouting = true
	x.mu.Unlock()
	err := x.install(ctx, p)
	x.mu.Lock()
	p.rerouting = false
	gone := err != nil && certain && ctx.Err() == nil
	if gone {
		x.unregister(p)
	}
	x.mu.Unlock()
	if gone {
		x.Log.Debug("no other route for a path", "path", p.id, "missing", missing, "error", err)
		x.remove(p)
	}
	return err == nil && !slices.Equal(before, x.currentHops(p))
}

// unregister removes a path from the indexes, so that it is not found any more.
func (x *paths) unregister(p *path) {
	if x.byEnds[p.endpointPair] != p {
		return
	}
	delete(x.byEnds, p.endpointPair)
	for _, e := range []endpoint{p.low, p.high} {
		if delete(x.byName[e.name], p); len(x.byName[e.name]) == 0 {
			delete(x.byName, e.name)
		}
		if x.pathsAt[e]--; x.pathsAt[e] == 0 {
			delete(x.pathsAt, e)
		}
	}
}

// remove deletes the rules of an unregistered path and then releases its labels.
func (x *paths) remove(p *path) {
	p.changeMu.Lock()
	defer p.changeMu.Unlock()
	if p.removed {
		return
	}
	p.removed = true
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if err := x.Rules.Remove(ctx, p.key()); err != nil {
		x.Log.Debug("cannot remove the rules of a path yet", "path", p.id, "error", err) // the ledger tries again
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.releaseLabels(p)
	x.opened.Add(p.opener, -1)
}

// expire removes the paths whose lease has ended. It stops when ctx ends: the paths that it leaves
// stay for the next run of the service.
func (x *paths) expire(ctx context.Context, now time.Time) {
	all := x.readyPaths(func(p *path) bool { return now.Sub(p.expires) > leaseGrace })
	tasks.Each(all, maxParallel, func(p *path) {
		x.mu.Lock()
		expired := now.Sub(p.expires) > leaseGrace && ctx.Err() == nil // no host has renewed it meanwhile
		if expired {
			x.unregister(p)
		}
		x.mu.Unlock()
		if expired {
			x.remove(p)
		}
	})
}
