package guard

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// Owner is the owner of the meters in the rule ledger.
const Owner = "qos-guard"

const (
	// MeterBase is added to a port's number to get the number of its meter. Meter numbers from
	// MeterBase up to twice MeterBase belong to links.
	MeterBase = 0x4000
	// Floor is the part of a link that best effort always gets, in percent, even if the whole link
	// is promised. A flow that cannot be accepted is therefore slow, but not cut off. Floor is
	// taken from the part of a promise that may be lacking (tolerance, 5 %). The same part also has
	// to cover the noise of package reserve (1 %), the error of measured use (0.12 % in the tests
	// of package network; it is a difference of counters, not smoothed), and the bytes that occupy
	// a wire but are counted by no port, meter or HTB class: preamble, checksum and gap, 24 bytes
	// for each frame of 1514 (1.6 %). Ports, meters and HTB classes all count headers, including
	// those of Ethernet, which are part of promised rates.
	Floor = 2
	// minShare is the part of a link, in percent, that best effort gets at least where it can harm
	// no promise; like other traffic it competes for more. If that does not fill the link, the rest
	// of the link can be measured, and flows that wait for a promise can be accepted.
	minShare = 25
	// margin is the part of a link, in percent, that is left to neither promises nor limited
	// traffic. It is for traffic without a meter, such as the answers to traffic that is not
	// critical, and for bytes that are not counted.
	margin = 4
	// burstShare is the divisor that gives a meter's burst: the traffic of one second, divided by
	// burstShare. minBurst is the least burst, in kbit: a dozen packets of full size.
	burstShare = 20
	minBurst   = 144
	// maxAtOnce bounds the switches that are asked at once.
	maxAtOnce = 64
	// unusedTime is how long a meter must have been unused before it is removed. It is longer than
	// the time to write rules that use the meter.
	unusedTime = 4 * time.Second
)

// Options holds what New needs.
type Options struct {
	Book  *reserve.Book
	Rules kit.Ledger
	Log   *slog.Logger
	// Interval is the interval at which meters are adjusted to capacities, and checked for
	// use.
	Interval time.Duration
}

// user is a service whose rules use meters. links returns the links with these meters; loaded is
// closed once that includes the links from before the start.
type user struct {
	links  func() []network.PortRef
	loaded <-chan struct{}
}

// Guard keeps one meter for each link on which traffic without a promise is limited. All of that
// traffic on the link shares the meter. Its methods may be called concurrently.
type Guard struct {
	Options
	mu     sync.Mutex
	meters map[network.PortRef]*meterState
	users  []user
}

// meterState is the state of a link's meter.
type meterState struct {
	kbit     atomic.Uint32 // the meter's rate; zero if there is no meter
	used     time.Time     // guarded by the guard's lock
	changing sync.Mutex    // held while the switch is asked to change the meter
	refused  bool          // whether the switch refuses meters; guarded by changing
}

// New returns a Guard without meters.
func New(o Options) *Guard {
	g := &Guard{Options: o, meters: map[network.PortRef]*meterState{}}
	o.Book.SetGuardMeter(g.Meter)
	return g
}

// Run removes unused meters, and adjusts the others to promises and capacities, until ctx
// ends. Meters of an earlier controller stay until all users have loaded their stored
// state.
func (g *Guard) Run(ctx context.Context) error {
	for _, u := range g.users {
		select {
		case <-ctx.Done():
			return nil
		case <-u.loaded:
		}
	}
	g.Rules.Ready()
	kit.NewLoop().Run(ctx, 0, g.Interval, g.Sweep)
	return nil
}

// AddUser adds a service whose rules use the meters of the links that the function returns. Once
// loaded is closed, the function must also return the links from before the start. AddUser must be
// called before Run.
func (g *Guard) AddUser(links func() []network.PortRef, loaded <-chan struct{}) {
	g.users = append(g.users, user{links, loaded})
}

// Meter returns the number of the meter for traffic out of a port; zero if the port has none.
func (g *Guard) Meter(at network.PortRef) uint32 {
	if g.Kbit(at) == 0 {
		return 0
	}
	return MeterBase + at.Port
}

// Kbit returns the rate of a link's meter, in kbit/s; zero if it has none.
func (g *Guard) Kbit(at network.PortRef) uint32 {
	if m := g.find(at); m != nil {
		return m.kbit.Load()
	}
	return 0
}

// find returns the state of a link's meter; nil if the meter was never used or has been removed.
func (g *Guard) find(at network.PortRef) *meterState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.meters[at]
}

// Ensure creates the meters of those links that have none, and adjusts the rates of the others.
func (g *Guard) Ensure(ctx context.Context, links []network.PortRef) {
	tasks.Each(links, maxAtOnce, func(at network.PortRef) {
		if at.Port < MeterBase {
			g.setRate(ctx, at, g.touch(at), func(uint32) uint32 { return g.rateFor(at) })
		}
	})
}

// Adjust updates the rates of the links' existing meters after a promise was made or released.
func (g *Guard) Adjust(ctx context.Context, links []network.PortRef) {
	tasks.Each(links, maxAtOnce, func(at network.PortRef) {
		if m := g.find(at); m != nil {
			g.setRate(ctx, at, m, func(now uint32) uint32 {
				if now == 0 {
					return 0
				}
				return g.rateFor(at)
			})
		}
	})
}

// Stored is the form of a meter in the store.
type Stored struct {
	Link network.PortRef `json:"link"`
	Kbit uint32          `json:"kbit"`
}

// Stored returns the meters of those links that have one.
func (g *Guard) Stored(links []network.PortRef) (all []Stored) {
	for _, at := range links {
		if kbit := g.Kbit(at); kbit != 0 {
			all = append(all, Stored{at, kbit})
		}
	}
	return all
}

// Restore declares the meters that an earlier controller has stored.
func (g *Guard) Restore(ctx context.Context, all []Stored) {
	for _, m := range all {
		if m.Kbit != 0 {
			g.setRate(ctx, m.Link, g.touch(m.Link), func(now uint32) uint32 { return cmp.Or(now, m.Kbit) })
		}
	}
}

// touch records that a link's meter is about to be used.
func (g *Guard) touch(at network.PortRef) *meterState {
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

// setRate writes a link's meter with the rate that want returns for the present rate now, unless
// that is zero or unchanged. If that fails, the meter stays as it is, and setRate tries again when
// the link is used next, unless the switch refuses meters.
func (g *Guard) setRate(ctx context.Context, at network.PortRef, m *meterState, want func(now uint32) uint32) {
	m.changing.Lock()
	defer m.changing.Unlock()
	now := m.kbit.Load()
	kbit := want(now)
	if kbit == 0 || kbit == now || m.refused {
		return
	}
	p := network.Program{Meters: []network.Meter{NewMeter(at.Switch, MeterBase+at.Port, kbit, burstShare)}}
	err := g.Rules.Apply(ctx, key(at), p, network.ApplyOptions{AllowDown: true})
	if m.refused = now == 0 && errors.Is(err, network.ErrRefused); err == nil {
		m.kbit.Store(kbit)
		return
	}
	g.Log.Warn("best effort is not held back on a link as it should be", "from", at, "error", err)
}

// rateFor returns the rate that a link leaves to best effort, in kbit/s: the part that is neither
// promised nor used by unlimited traffic, so that promises lose nothing to best effort. The rate is
// zero while the capacity is not known.
func (g *Guard) rateFor(at network.PortRef) uint32 {
	capacity := g.Book.Use(at).Capacity
	others, _ := g.Book.Others(at) // zero while not known
	left := capacity - capacity*margin/100
	left -= min(g.Book.Promised(at), left)
	left -= min(others, left)
	least := uint64(minShare)
	if g.Book.Unenforced(at) > 0 {
		least = Floor
	}
	return uint32(min(max(left, capacity*least/100)/1000, 1<<31))
}

// key returns the key of a link's meter in the rule ledger.
func key(at network.PortRef) string { return "guard/" + at.String() }

// Sweep removes meters that no user's rules use any more, and adjusts the others to
// capacities and promises.
func (g *Guard) Sweep(ctx context.Context) {
	used := map[network.PortRef]bool{}
	for _, u := range g.users {
		for _, at := range u.links() {
			used[at] = true
		}
	}
	g.Adjust(ctx, slices.Collect(maps.Keys(used)))
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
	tasks.Each(slices.Collect(maps.Keys(unused)), maxAtOnce, func(at network.PortRef) { g.remove(ctx, at, unused[at]) })
}

// unused reports whether no flow is about to use the meter. The guard's lock is held.
func (m *meterState) unused() bool { return time.Since(m.used) >= unusedTime }

// remove removes a meter, unless it has been used again meanwhile.
func (g *Guard) remove(ctx context.Context, at network.PortRef, m *meterState) {
	m.changing.Lock()
	defer m.changing.Unlock()
	g.mu.Lock()
	unused := m.unused()
	g.mu.Unlock()
	if !unused || g.Rules.Remove(ctx, key(at)) != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.kbit.Store(0); m.unused() { // otherwise another call waits to create it again
		delete(g.meters, at)
	}
}

// NewMeter returns a meter that passes the rate kbit, in kbit/s. Its burst is the traffic of one
// second divided by part, but at least minBurst.
func NewMeter(sw openflow.DatapathID, id, kbit, part uint32) network.Meter {
	return network.Meter{
		Switch: sw, ID: id, Flags: openflow.MeterFlagKbps | openflow.MeterFlagBurst,
		Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: kbit, Burst: max(kbit/part, minBurst)}},
	}
}
