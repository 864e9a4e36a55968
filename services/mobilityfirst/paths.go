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
	// maxWaiting is how many requests wait for a path that is being made.
	maxWaiting = 8
	// maxSetups is how many paths are made at one time, maxSetupsFrom how many for one port: while
	// switches are slow, others go without.
	maxSetups, maxSetupsFrom = 512, 64
)

// Errors of paths that can't be had.
var (
	errTooMany = errors.New("there are as many paths as there may be")
	errBusy    = errors.New("as many paths are being made as may be")
	errSlow    = errors.New("switches take too long")
	errLabels  = errors.New("all labels between two hosts are taken")
	errEnded   = errors.New("the service has ended")
)

// ends are two names at two places, the lower first.
type ends struct{ low, high end }

func endsOf(a, b end) ends {
	if a.compare(b) > 0 {
		a, b = b, a
	}
	return ends{a, b}
}

// path leads frames between two ends.
type path struct {
	ends
	id            uint64
	toHigh, toLow uint16          // labels of frames that go there
	opener        network.PortRef // of who asked first

	// Guarded by paths.mu.
	until   time.Time
	asked   map[end]uint64 // the number of the request with which each of the ends has asked last
	ready   bool           // the switches have it
	slow    bool           // they have not had it in time
	mending bool
	hops    []network.Hop // from low to high
	waiting []leased

	changing sync.Mutex // while switches are told
	gone     bool       // guarded by changing
}

// leased is called with a path that has just been made, or why it can't be had.
type leased func(p *path, err error)

// key is that of its rules.
func (p *path) key() string { return "path/" + strconv.FormatUint(p.id, 10) }

// labels are those of frames to one end, and from there.
func (p *path) labels(to end) (there, back uint16) {
	if to == p.high {
		return p.toHigh, p.toLow
	}
	return p.toLow, p.toHigh
}

// from is the end that has a name, and the other one.
func (p *path) from(name frame.GUID) (this, other end) {
	if p.low.name == name {
		return p.low, p.high
	}
	return p.high, p.low
}

// paths are all that there are.
type paths struct {
	*Options
	setups *tasks.Group

	mu     sync.Mutex
	of     map[ends]*path
	by     map[frame.GUID]map[*path]struct{} // those to and from a name
	ending map[end]int                       // how many have an end
	opened kit.Shares
	making kit.Shares
	labels labels
	last   uint64
}

func newPaths(o *Options) *paths {
	return &paths{
		Options: o, setups: tasks.New(), of: map[ends]*path{}, by: map[frame.GUID]map[*path]struct{}{}, ending: map[end]int{},
		opened: kit.NewShares(), making: kit.NewShares(), labels: labels{of: map[[2]openflow.MAC]map[uint16]struct{}{}},
	}
}

// lease has a path be there for a lease from when it was asked for. If neither the path nor an error is returned, the
// switches do not have it yet: then is called when they do, in another goroutine, for the first of those who wait.
func (x *paths) lease(from, to end, asked *said, then leased) (*path, error) {
	x.mu.Lock()
	p, isNew, err := x.find(endsOf(from, to), from.At)
	if err != nil {
		x.mu.Unlock()
		return nil, err
	}
	p.until, p.asked[from] = asked.at.Add(x.Lease), asked.request.ID
	ready, slow, hops := p.ready, p.slow, p.hops
	if !ready && !slow && len(p.waiting) < maxWaiting {
		p.waiting = append(p.waiting, then)
	}
	x.mu.Unlock()
	switch {
	case isNew:
		if !x.setups.Start(func(ctx context.Context) { x.setUp(ctx, p) }) {
			x.settle(p, errEnded)
		}
	case ready:
		if missing, _ := kit.MissingLink(x.Network, hops); missing != "" {
			x.setups.Start(func(ctx context.Context) { x.mend(ctx, p) })
		}
		return p, nil
	case slow:
		return nil, errSlow
	}
	return nil, nil //nolint:nilnil // then will tell
}

// find is the path between two ends, a new one if there is none.
func (x *paths) find(key ends, opener network.PortRef) (p *path, isNew bool, err error) {
	if p = x.of[key]; p != nil {
		return p, false, nil
	}
	p, err = x.begin(key, opener)
	return p, true, err
}

// room says why there may be no further path that is opened from a port; nil if there may be.
func (x *paths) room(opener network.PortRef) error {
	switch {
	case !x.opened.Room(opener, x.MaxPaths, x.MaxPaths/4, x.MaxPaths/8):
		return errTooMany
	case !x.making.Room(opener, maxSetups, maxSetups/4, maxSetupsFrom):
		return errBusy
	}
	return nil
}

// begin notes a new path.
func (x *paths) begin(key ends, opener network.PortRef) (*path, error) {
	if err := x.room(opener); err != nil {
		return nil, err
	}
	p := &path{ends: key, id: x.last, opener: opener, asked: map[end]uint64{}}
	p.toHigh, p.toLow = x.labels.take(key.low.MAC, key.high.MAC), x.labels.take(key.high.MAC, key.low.MAC)
	if p.toHigh == 0 || p.toLow == 0 {
		x.giveBack(p)
		return nil, errLabels
	}
	x.last++
	x.making.Add(opener, 1)
	x.opened.Add(opener, 1)
	x.of[key] = p
	for _, e := range []end{key.low, key.high} {
		if x.by[e.name] == nil {
			x.by[e.name] = map[*path]struct{}{}
		}
		x.by[e.name][p] = struct{}{}
		x.ending[e]++
	}
	return p, nil
}

// giveBack gives a path's labels back.
func (x *paths) giveBack(p *path) {
	x.labels.giveBack(p.low.MAC, p.high.MAC, p.toHigh)
	x.labels.giveBack(p.high.MAC, p.low.MAC, p.toLow)
}

// to are the ends of the paths to a name, but for those to a place.
func (x *paths) to(name frame.GUID, but place) map[end]struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	who := map[end]struct{}{}
	for p := range x.by[name] {
		if here, there := p.from(name); here.place != but {
			who[there] = struct{}{}
		}
	}
	return who
}

// count is how many there are.
func (x *paths) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.of)
}

// list are the paths that there are and of which something is so.
func (x *paths) list(is func(*path) bool) (all []*path) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.of {
		if p.ready && is(p) {
			all = append(all, p)
		}
	}
	return all
}
