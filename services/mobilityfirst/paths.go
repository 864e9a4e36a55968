package mobilityfirst

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// maxWaiting limits the requests that wait for one path to be set up.
	maxWaiting = 8
	// maxSetups limits the paths that are being set up at one time, and maxSetupsFrom those for one
	// port. When switches are slow, further requests continue without a path.
	maxSetups, maxSetupsFrom = 512, 64
)

// Reasons why a path is not available.
var (
	errTooMany = errors.New("the limit of paths has been reached")
	errBusy    = errors.New("too many paths are being set up")
	errSlow    = errors.New("the switches take too long")
	errLabels  = errors.New("all labels between the two hosts are in use")
	errEnded   = errors.New("the service has ended")
)

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
	toHigh, toLow uint16          // labels of frames to that end
	opener        network.PortRef // the port of the host that asked first

	// Guarded by paths.mu.
	expires   time.Time
	requests  map[endpoint]uint64 // the ID of each endpoint's last request
	ready     bool                // its rules are installed
	slow      bool                // its rules were not installed in time
	rerouting bool
	hops      []network.Hop // from low to high
	waiting   []doneFunc

	changeMu sync.Mutex // held while rules are changed
	removed  bool       // guarded by changeMu
}

// doneFunc is called with a path that has been set up, or with the reason why it is not available.
type doneFunc func(p *path, err error)

// key returns the key of the path's rules.
func (p *path) key() string { return "path/" + strconv.FormatUint(p.id, 10) }

// labels returns the labels of frames to one end, and from there.
func (p *path) labels(to endpoint) (there, back uint16) {
	if to == p.high {
		return p.toHigh, p.toLow
	}
	return p.toLow, p.toHigh
}

// endpointsFrom returns the end with this name, and the other end.
func (p *path) endpointsFrom(name frame.GUID) (this, other endpoint) {
	if p.low.name == name {
		return p.low, p.high
	}
	return p.high, p.low
}

// paths holds all paths.
type paths struct {
	*Options
	setups *tasks.Group

	mu        sync.Mutex
	byEnds    map[endpointPair]*path
	byName    map[frame.GUID]map[*path]struct{} // the paths that begin or end at a name
	pathsAt   map[endpoint]int                  // the number of paths of each endpoint
	opened    kit.Shares
	settingUp kit.Shares
	labels    labels
	nextID    uint64
}

func newPaths(o *Options) *paths {
	return &paths{
		Options: o, setups: tasks.New(), byEnds: map[endpointPair]*path{}, byName: map[frame.GUID]map[*path]struct{}{}, pathsAt: map[endpoint]int{},
		opened: kit.NewShares(), settingUp: kit.NewShares(), labels: labels{taken: map[[2]openflow.MAC]map[uint16]struct{}{}},
	}
}

// lease renews the path between two endpoints, or sets it up, for a lease that begins when it was
// asked for. If it returns neither a path nor an error, the rules are not installed yet; it then
// calls done in another goroutine, for the first maxWaiting requests only.
func (x *paths) lease(from, to endpoint, asked *message, done doneFunc) (*path, error) {
	x.mu.Lock()
	p, isNew, err := x.findOrAdd(pairOf(from, to), from.At)
	if err != nil {
		x.mu.Unlock()
		return nil, err
	}
	p.expires, p.requests[from] = asked.received.Add(x.Lease), asked.request.ID
	ready, slow, hops := p.ready, p.slow, p.hops
	if !ready && !slow && len(p.waiting) < maxWaiting {
		p.waiting = append(p.waiting, done)
	}
	x.mu.Unlock()
	switch {
	case isNew:
		if !x.setups.Start(func(ctx context.Context) { x.setUp(ctx, p) }) {
			x.finish(p, errEnded)
		}
	case ready:
		if missing, _ := kit.MissingLink(x.Network, hops); missing != "" {
			x.setups.Start(func(ctx context.Context) { x.repair(ctx, p) })
		}
		return p, nil
	case slow:
		return nil, errSlow
	}
	return nil, nil //nolint:nilnil // done is called later
}

// findOrAdd returns the path between two endpoints, and adds a new one if there is none.
func (x *paths) findOrAdd(key endpointPair, opener network.PortRef) (p *path, isNew bool, err error) {
	if p = x.byEnds[key]; p != nil {
		return p, false, nil
	}
	p, err = x.add(key, opener)
	return p, true, err
}

// admit returns the reason why no further path may be opened from a port, or nil.
func (x *paths) admit(opener network.PortRef) error {
	switch {
	case !x.opened.Room(opener, x.MaxPaths, x.MaxPaths/4, x.MaxPaths/8):
		return errTooMany
	case !x.settingUp.Room(opener, maxSetups, maxSetups/4, maxSetupsFrom):
		return errBusy
	}
	return nil
}

// add adds a new path and allocates its labels.
func (x *paths) add(key endpointPair, opener network.PortRef) (*path, error) {
	if err := x.admit(opener); err != nil {
		return nil, err
	}
	p := &path{endpointPair: key, id: x.nextID, opener: opener, requests: map[endpoint]uint64{}}
	p.toHigh, p.toLow = x.labels.allocate(key.low.MAC, key.high.MAC), x.labels.allocate(key.high.MAC, key.low.MAC)
	if p.toHigh == 0 || p.toLow == 0 {
		x.releaseLabels(p)
		return nil, errLabels
	}
	x.nextID++
	x.settingUp.Add(opener, 1)
	x.opened.Add(opener, 1)
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

// releaseLabels releases a path's labels.
func (x *paths) releaseLabels(p *path) {
	x.labels.release(p.low.MAC, p.high.MAC, p.toHigh)
	x.labels.release(p.high.MAC, p.low.MAC, p.toLow)
}

// peersOf returns the other ends of the paths to a name, except of those that lead to the given
// place.
func (x *paths) peersOf(name frame.GUID, except place) map[endpoint]struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	peers := map[endpoint]struct{}{}
	for p := range x.byName[name] {
		if here, there := p.endpointsFrom(name); here.place != except {
			peers[there] = struct{}{}
		}
	}
	return peers
}

// count returns the number of paths.
func (x *paths) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.byEnds)
}

// readyPaths returns the paths whose rules are installed and that match.
func (x *paths) readyPaths(match func(*path) bool) (all []*path) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.byEnds {
		if p.ready && match(p) {
			all = append(all, p)
		}
	}
	return all
}
