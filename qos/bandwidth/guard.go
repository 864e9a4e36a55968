package bandwidth

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/way"
)

const (
	// meterBase is added to a port's number to make its meter's.
	meterBase = 0x4000
	// floor is the part of a link that best effort always gets, in percent, even of one
	// that is promised as a whole: a flow that cannot be accepted is slow, not cut off.
	// It is taken out of what a promise may lack (tolerance, 5 %), which also has to
	// cover the noise of package reserve (1 %), what is wrong with measured use (0.12 %
	// in the tests of package network; it is a difference of counters, not smoothed), and
	// what takes up a wire but is counted by no port, meter or HTB class: preamble,
	// checksum and gap, 24 bytes for each frame of 1514 (1.6 %). Headers, Ethernet's
	// included, are counted by all of them and part of what is promised.
	floor = 2
	// margin is the part of a link, in percent, that is left to neither promises nor
	// those that are held back: to what has no meter, as the answers to traffic that is
	// not critical, and to what is not counted.
	margin = 4
	// burstShare is the part of a second's traffic that a meter lets through at once,
	// and minBurst the least, in kbit: a dozen packets of full size.
	burstShare = 20
	minBurst   = 144
)

// guard keeps the meters that hold best-effort flows to what is not promised: one for
// each link that such flows go by, which they share.
type guard struct {
	Options
	mu     sync.Mutex
	meters map[network.PortRef]*meterState
}

// meterState is the meter of a link.
type meterState struct {
	kbit     atomic.Uint32 // zero while there is none
	used     time.Time     // the guard's lock guards it
	changing sync.Mutex    // held while the switch is asked
	refused  bool          // the switch takes none; changing guards it
}

func newGuard(o Options) *guard { return &guard{Options: o, meters: map[network.PortRef]*meterState{}} }

// meter is the meter for traffic out of a port, zero if it has none.
func (g *guard) meter(at network.PortRef) uint32 {
	if g.kbit(at) == 0 {
		return 0
	}
	return meterBase + at.Port
}

// kbit is the rate of a link's meter, zero if it has none.
func (g *guard) kbit(at network.PortRef) uint32 {
	if m := g.find(at); m != nil {
		return m.kbit.Load()
	}
	return 0
}

// find is what is known of a link's meter, nil if nobody has used it.
func (g *guard) find(at network.PortRef) *meterState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.meters[at]
}

// ensure makes the meters of links that have none.
func (g *guard) ensure(ctx context.Context, links []network.PortRef) {
	each(links, func(at network.PortRef) {
		if at.Port < meterBase {
			g.change(ctx, at, g.use(at), func(uint32) uint32 { return g.leave(at) })
		}
	})
}

// adjust changes the meters of links, where there are any, after something has been
// promised or given up.
func (g *guard) adjust(ctx context.Context, links []network.PortRef) {
	each(links, func(at network.PortRef) {
		if m := g.find(at); m != nil {
			g.change(ctx, at, m, func(now uint32) uint32 {
				if now == 0 {
					return 0
				}
				return g.leave(at)
			})
		}
	})
}

// revive declares a meter of before the start.
func (g *guard) revive(ctx context.Context, at network.PortRef, kbit uint32) {
	if kbit != 0 {
		g.change(ctx, at, g.use(at), func(now uint32) uint32 { return cmp.Or(now, kbit) })
	}
}

// use notes that a link's meter is about to be used.
func (g *guard) use(at network.PortRef) *meterState {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.meters[at]
	if m == nil {
		m = &meterState{}
		g.meters[at] = m
	}
	m.used = time.Now()
	return m
}

// change writes a link's meter, if the rate that want gives for the present one is
// another and not zero. What fails leaves the meter as it is, and is tried again when
// the link is used next, unless the switch takes no meter.
func (g *guard) change(ctx context.Context, at network.PortRef, m *meterState, want func(now uint32) uint32) {
	m.changing.Lock()
	defer m.changing.Unlock()
	now := m.kbit.Load()
	kbit := want(now)
	if kbit == 0 || kbit == now || m.refused {
		return
	}
	p := network.Program{Meters: []network.Meter{meterOf(at.Switch, meterBase+at.Port, kbit, burstShare)}}
	err := g.Rules.Apply(ctx, guardKey(at), p, network.ApplyOptions{AllowDown: true})
	if m.refused = now == 0 && errors.Is(err, network.ErrRefused); err == nil {
		m.kbit.Store(kbit)
		return
	}
	g.Log.Warn("best effort is not held back on a link as it should be", "from", at, "error", err)
}

// leave is what a link leaves to best effort, in kbit/s; zero while its capacity is not known.
func (g *guard) leave(at network.PortRef) uint32 {
	capacity := g.Book.Use(at).Capacity
	usable := capacity - capacity*margin/100
	left := max(usable-min(g.Book.Promised(at), usable), capacity*floor/100)
	return uint32(min(left/1000, 1<<31))
}

func guardKey(at network.PortRef) string { return "guard/" + at.String() }

// unusedFor is how long no flow must have passed a meter before it is removed: longer
// than a flow's rules take to be written.
const unusedFor = 2 * placeFor

// sweep takes meters away that none of the flows passes any more, and follows the
// capacities of the others.
func (g *guard) sweep(ctx context.Context, flows []*flow) {
	used := map[network.PortRef]bool{}
	for _, f := range flows {
		if p := f.now(); !p.ended && p.State == StateBestEffort {
			for _, at := range way.Ports(p.Hops) {
				used[at] = true
			}
		}
	}
	g.adjust(ctx, slices.Collect(maps.Keys(used)))
	unused := map[network.PortRef]*meterState{}
	g.mu.Lock()
	for at, m := range g.meters {
		if used[at] {
			m.used = time.Now()
		} else if m.unused() {
			unused[at] = m
		}
	}
	g.mu.Unlock()
	each(slices.Collect(maps.Keys(unused)), func(at network.PortRef) { g.drop(ctx, at, unused[at]) })
}

// unused says that no flow is about to pass the meter. The guard's lock is held.
func (m *meterState) unused() bool { return time.Since(m.used) >= unusedFor }

// drop takes a meter away, unless it is used again.
func (g *guard) drop(ctx context.Context, at network.PortRef, m *meterState) {
	m.changing.Lock()
	defer m.changing.Unlock()
	g.mu.Lock()
	unused := m.unused()
	g.mu.Unlock()
	if !unused || g.Rules.Remove(ctx, guardKey(at)) != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.kbit.Store(0); m.unused() { // else somebody waits to make it again
		delete(g.meters, at)
	}
}
