package mobilityfirst

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// setupTimeout is how long switches may take to install a path. Requests wait no longer; a change
// that has begun at a slow switch takes as long as the switch does.
const setupTimeout = 2 * time.Second

// errLabels is the reason why a path is not available although there is room for it.
var errLabels = errors.New("all labels between the two hosts are in use")

// endpointPair is two endpoints, the lower one first.
type endpointPair struct{ low, high endpoint }

func pairOf(a, b endpoint) endpointPair {
	if a.compare(b) > 0 {
		a, b = b, a
	}
	return endpointPair{a, b}
}

// path forwards frames between two endpoints.
type path struct {
	endpointPair
	id            uint64
	key           string       // of its rules
	toHigh, toLow uint16       // labels of frames to that end
	expires       atomic.Int64 // in nanoseconds of Unix time; written with paths.mu held
	ofLow, ofHigh uint64       // the ID of each end's last request; guarded by paths.mu
}

// route is a path with the switches that it passes.
type route struct {
	*path
	hops []network.Hop // from low to high; none until its rules are installed
}

// doneFunc is called with a path that has been set up, or with the reason why it is not available.
type doneFunc func(p *path, err error)

// labels returns the labels of frames to one end of the path, and of frames from that end.
func (p *path) labels(to endpoint) (there, back uint16) {
	if to == p.high {
		return p.toHigh, p.toLow
	}
	return p.toLow, p.toHigh
}

// lastRequest returns the ID of the last request of an end. The lock of paths is held.
func (p *path) lastRequest(of endpoint) *uint64 {
	if of == p.high {
		return &p.ofHigh
	}
	return &p.ofLow
}

// endpointsFrom returns the end with this name, and the other end.
func (p *path) endpointsFrom(name frame.GUID) (this, other endpoint) {
	if p.low.name == name {
		return p.low, p.high
	}
	return p.high, p.low
}

// paths holds all paths. Its flows write and reroute them.
type paths struct {
	*Options
	flows *kit.Flows[route]

	mu      sync.Mutex // locked before that of flows
	byEnds  map[endpointPair]*path
	byName  map[frame.GUID]map[*path]struct{} // the paths that begin or end at a name
	pathsAt map[endpoint]int                  // the number of paths of each endpoint
	labels  labels
	nextID  uint64
}

func newPaths(o *Options) *paths {
	x := &paths{
		Options: o, byEnds: map[endpointPair]*path{}, byName: map[frame.GUID]map[*path]struct{}{}, pathsAt: map[endpoint]int{},
		labels: labels{taken: map[[2]openflow.MAC]map[uint16]struct{}{}},
	}
	x.flows = kit.NewFlows(kit.FlowOptions[route]{
		Name: "paths", Rules: o.Rules, Log: o.Log, MaxFlows: o.MaxPaths, Timeout: setupTimeout, Debounce: rerouteDelay,
		Place: x.place, Due: x.due, Failed: x.failed, Ended: x.ended, Waves: waves,
	})
	return x
}

// lease renews the path between two endpoints, or sets it up. The lease begins when the message
// asked was received. If lease returns neither a path nor an error, the rules are not installed
// yet; done is then called later, unless too many requests wait for the path. done must not lock
// x.mu.
func (x *paths) lease(from, to endpoint, asked *message, done doneFunc) (*path, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p, err := x.findOrAdd(pairOf(from, to), from.At)
	if err != nil {
		return nil, err
	}
	x.renewLease(p, from, asked)
	r, placed, err := x.flows.Begin(p.key, from.At, route{path: p}, func(r route, err error) { done(r.path, err) })
	if err != nil || !placed {
		return nil, err
	}
	x.checkRoute(r)
	return p, nil
}

// renew renews the path between two endpoints if its rules are installed, as lease does. Otherwise
// it returns nil.
func (x *paths) renew(from, to endpoint, asked *message) *path {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.byEnds[pairOf(from, to)]
	if p == nil {
		return nil
	}
	r, placed := x.flows.Value(p.key)
	if !placed {
		return nil
	}
	x.renewLease(p, from, asked)
	x.checkRoute(r)
	return p
}

// renewLease records the request of one end of a path. The lock is held.
func (x *paths) renewLease(p *path, from endpoint, asked *message) {
	p.expires.Store(asked.received.Add(x.Lease).UnixNano())
	*p.lastRequest(from) = asked.request.ID
}

// checkRoute makes x.flows choose another route for a path whose route is broken.
func (x *paths) checkRoute(r route) {
	if missing, _ := kit.MissingLink(x.Network, r.hops); missing != "" {
		x.flows.Check(r.key)
	}
}

// findOrAdd returns the path between two endpoints. If there is none it adds one and allocates its
// labels.
func (x *paths) findOrAdd(key endpointPair, opener network.PortRef) (*path, error) {
	if p := x.byEnds[key]; p != nil {
		return p, nil
	}
	if err := x.flows.Room(opener); err != nil {
		return nil, err
	}
	p := &path{endpointPair: key, id: x.nextID, key: "path/" + strconv.FormatUint(x.nextID, 10)}
	p.toHigh, p.toLow = x.labels.allocate(key.low.MAC, key.high.MAC), x.labels.allocate(key.high.MAC, key.low.MAC)
	if p.toHigh == 0 || p.toLow == 0 {
		x.releaseLabels(p)
		return nil, errLabels
	}
	x.nextID++
	x.byEnds[key] = p
	for _, e := range []endpoint{key.low, key.high} {
		if x.byName[e.name] == nil {
			x.byName[e.name] = map[*path]struct{}{}
		}
		x.byName[e.name][p] = struct{}{}
		x.pathsAt[e]++
	}
	return p, nil
}

// place chooses the best route of a path that has none, or whose route is broken. If there is no
// other route, the path ends, and its hosts ask again. If the route seems broken only because a
// switch has lost its connection to the controller, the path stays, because the switch may still
// forward frames.
func (x *paths) place(_ context.Context, _ string, r route) (route, network.Program, error) {
	if x.endIfExpired(r.path) {
		return r, network.Program{}, kit.ErrFlowEnded
	}
	missing, certain := "a route", true
	if r.hops != nil {
		missing, certain = kit.MissingLink(x.Network, r.hops)
	}
	if missing != "" {
		best, ok := x.Network.Topology().Path(r.low.At, r.high.At, x.Metric)
		switch {
		case ok:
			r.hops = best.Hops
		case certain:
			return r, network.Program{}, fmt.Errorf("%v to %v: %w: %w", r.low.At, r.high.At, network.ErrNoPath, kit.ErrFlowEnded)
		}
	}
	return r, network.Program{Rules: PathRules(r.hops, r.toHigh, r.toLow, r.low.MAC, r.high.MAC)}, nil
}

// due reports whether the lease of a path has ended, or its route is broken.
func (x *paths) due(r route) bool {
	missing, _ := kit.MissingLink(x.Network, r.hops)
	return missing != "" || r.hasExpired()
}

// failed reports whether a path that could not be rerouted ends. It ends if its route is certainly
// broken.
func (x *paths) failed(r route, _ error) bool {
	missing, certain := kit.MissingLink(x.Network, r.hops)
	return missing != "" && certain
}

// ended removes a path from the indexes, so that it is not found any more. Its labels are released
// when its rules have been removed.
func (x *paths) ended(r route) (removed func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unregister(r.path)
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.releaseLabels(r.path)
	}
}

// waves returns the order in which the switches of a route are written.
func waves(r route, moves bool) [][]openflow.DatapathID {
	if !moves {
		return nil
	}
	return kit.Waves(r.hops)
}

// hasExpired reports whether no host has renewed the path's lease in time.
func (p *path) hasExpired() bool { return time.Now().UnixNano()-p.expires.Load() > int64(leaseGrace) }

// endIfExpired reports whether a path's lease has ended, and if so removes the path from the
// indexes.
func (x *paths) endIfExpired(p *path) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !p.hasExpired() {
		return false
	}
	x.unregister(p)
	return true
}

// unregister removes a path from the indexes. The lock is held.
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

// releaseLabels releases a path's labels.
func (x *paths) releaseLabels(p *path) {
	x.labels.release(p.low.MAC, p.high.MAC, p.toHigh)
	x.labels.release(p.high.MAC, p.low.MAC, p.toLow)
}

// peersOf returns the other ends of the paths to a name.
func (x *paths) peersOf(name frame.GUID) map[endpoint]struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	peers := map[endpoint]struct{}{}
	for p := range x.byName[name] {
		_, there := p.endpointsFrom(name)
		peers[there] = struct{}{}
	}
	return peers
}

// count returns the number of paths.
func (x *paths) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.byEnds)
}

// routes returns the paths whose rules are installed.
func (x *paths) routes() (all []route) {
	for _, r := range x.flows.Values() {
		if r.hops != nil {
			all = append(all, r)
		}
	}
	return all
}
