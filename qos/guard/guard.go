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
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/service"
)

// Owner is the owner of the meters in the rule ledger.
const Owner = "qos-guard"

const (
	// MeterBase is added to a port's number to make its meter's: those from there to twice as
	// many are for links.
	MeterBase = 0x4000
	// Floor is the part of a link that best effort always gets, in percent, even of one
	// that is promised as a whole: a flow that cannot be accepted is slow, not cut off.
	// It is taken out of what a promise may lack (tolerance, 5 %), which also has to
	// cover the noise of package reserve (1 %), what is wrong with measured use (0.12 %
	// in the tests of package network; it is a difference of counters, not smoothed), and
	// what takes up a wire but is counted by no port, meter or HTB class: preamble,
	// checksum and gap, 24 bytes for each frame of 1514 (1.6 %). Headers, Ethernet's
	// included, are counted by all of them and part of what is promised.
	Floor = 2
	// share is the part of a link, in percent, that best effort gets at least where nothing is
	// promised that it could harm: as other traffic it competes for more. Where that does not
	// fill the link, the rest of it can be measured, and flows that wait be accepted.
	share = 25
	// margin is the part of a link, in percent, that is left to neither promises nor
	// those that are held back: to what has no meter, as the answers to traffic that is
	// not critical, and to what is not counted.
	margin = 4
	// burstShare is the part of a second's traffic that a meter lets through at once,
	// and minBurst the least, in kbit: a dozen packets of full size.
	burstShare = 20
	minBurst   = 144
	// maxAtOnce is how many switches are asked at once.
	maxAtOnce = 64
	// unusedFor is how long nobody must have used a meter before it is removed: longer than
	// rules take to be written.
	unusedFor = 4 * time.Second
)

// Options is what a Guard works with.
type Options struct {
	Book  *reserve.Book
	Rules service.Ledger
	Log   *slog.Logger
	// Interval is how often meters follow capacities, and are looked at whether they are used.
	Interval time.Duration
}

// user is somebody whose rules pass meters.
type user struct {
	links  func() []network.PortRef
	loaded <-chan struct{}
}

// Guard keeps meters: one for each link that traffic without a promise is held back on, which
// all of it shares. Its methods may be called concurrently.
type Guard struct {
	Options
	mu     sync.Mutex
	meters map[network.PortRef]*meterState
	users  []user
}

// meterState is the meter of a link.
type meterState struct {
	kbit     atomic.Uint32 // zero while there is none
	used     time.Time     // the guard's lock guards it
	changing sync.Mutex    // held while the switch is asked
	refused  bool          // the switch takes none; changing guards it
}

// New returns a Guard without meters.
func New(o Options) *Guard {
	g := &Guard{Options: o, meters: map[network.PortRef]*meterState{}}
	o.Book.Guarded(g.Meter)
	return g
}

// Run takes meters away that are not used, and has the others follow promises and capacities,
// until ctx ends. Meters of before the start stay until all who use them have loaded what the
// store has.
func (g *Guard) Run(ctx context.Context) error {
	for _, u := range g.users {
		select {
		case <-ctx.Done():
			return nil
		case <-u.loaded:
		}
	}
	g.Rules.Ready()
	service.NewLoop().Run(ctx, 0, g.Interval, g.Sweep)
	return nil
}

// Uses tells of somebody whose rules pass the meters of links, once loaded is closed: those that
// were there before the start are among them then. It is called before Run.
func (g *Guard) Uses(links func() []network.PortRef, loaded <-chan struct{}) {
	g.users = append(g.users, user{links, loaded})
}

// Meter is the meter for traffic out of a port, zero if it has none.
func (g *Guard) Meter(at network.PortRef) uint32 {
	if g.Kbit(at) == 0 {
		return 0
	}
	return MeterBase + at.Port
}

// Kbit is the rate of a link's meter, zero if it has none.
func (g *Guard) Kbit(at network.PortRef) uint32 {
	if m := g.find(at); m != nil {
		return m.kbit.Load()
	}
	return 0
}

// find is what is known of a link's meter, nil if nobody has used it.
func (g *Guard) find(at network.PortRef) *meterState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.meters[at]
}

// Ensure makes the meters of links that have none.
func (g *Guard) Ensure(ctx context.Context, links []network.PortRef) {
	tasks.Each(links, maxAtOnce, func(at network.PortRef) {
		if at.Port < MeterBase {
			g.change(ctx, at, g.use(at), func(uint32) uint32 { return g.leave(at) })
		}
	})
}

// Adjust changes the meters of links, where there are any, after something has been
// promised or given up.
func (g *Guard) Adjust(ctx context.Context, links []network.PortRef) {
	tasks.Each(links, maxAtOnce, func(at network.PortRef) {
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

// Stored is a meter as the store keeps it with what passes it.
type Stored struct {
	Link network.PortRef `json:"link"`
	Kbit uint32          `json:"kbit"`
}

// Stored are the meters of links, of those that have one.
func (g *Guard) Stored(links []network.PortRef) (all []Stored) {
	for _, at := range links {
		if kbit := g.Kbit(at); kbit != 0 {
			all = append(all, Stored{at, kbit})
		}
	}
	return all
}

// Revive declares meters of before the start.
func (g *Guard) Revive(ctx context.Context, all []Stored) {
	for _, m := range all {
		if m.Kbit != 0 {
			g.change(ctx, m.Link, g.use(m.Link), func(now uint32) uint32 { return cmp.Or(now, m.Kbit) })
		}
	}
}

// use notes that a link's meter is about to be used.
func (g *Guard) use(at network.PortRef) *meterState {
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
func (g *Guard) change(ctx context.Context, at network.PortRef, m *meterState, want func(now uint32) uint32) {
	m.changing.Lock()
	defer m.changing.Unlock()
	now := m.kbit.Load()
	kbit := want(now)
	if kbit == 0 || kbit == now || m.refused {
		return
	}
	p := network.Program{Meters: []network.Meter{MeterOf(at.Switch, MeterBase+at.Port, kbit, burstShare)}}
	err := g.Rules.Apply(ctx, key(at), p, network.ApplyOptions{AllowDown: true})
	if m.refused = now == 0 && errors.Is(err, network.ErrRefused); err == nil {
		m.kbit.Store(kbit)
		return
	}
	g.Log.Warn("best effort is not held back on a link as it should be", "from", at, "error", err)
}

// leave returns what a link leaves to best effort, in kbit/s: what is neither promised nor used
// by traffic that nothing holds back, so that promises lose nothing to it. It is zero while the
// capacity is not known.
func (g *Guard) leave(at network.PortRef) uint32 {
	capacity := g.Book.Use(at).Capacity
	others, _ := g.Book.Others(at) // zero while not known
	left := capacity - capacity*margin/100
	left -= min(g.Book.Promised(at), left)
	left -= min(others, left)
	least := uint64(share)
	if g.Book.Open(at) > 0 {
		least = Floor
	}
	return uint32(min(max(left, capacity*least/100)/1000, 1<<31))
}

// key names a meter in the ledger.
func key(at network.PortRef) string { return "guard/" + at.String() }

// Sweep takes meters away that nobody's rules pass any more, and follows the capacities and
// promises of the others.
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
	tasks.Each(slices.Collect(maps.Keys(unused)), maxAtOnce, func(at network.PortRef) { g.drop(ctx, at, unused[at]) })
}

// unused says that no flow is about to pass the meter. The guard's lock is held.
func (m *meterState) unused() bool { return time.Since(m.used) >= unusedFor }

// drop takes a meter away, unless it is used again.
func (g *Guard) drop(ctx context.Context, at network.PortRef, m *meterState) {
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
	if m.kbit.Store(0); m.unused() { // else somebody waits to make it again
		delete(g.meters, at)
	}
}

// MeterOf lets a rate through, in kbit/s, and at once what comes in a part of a second.
func MeterOf(sw openflow.DatapathID, id, kbit, part uint32) network.Meter {
	return network.Meter{
		Switch: sw, ID: id, Flags: openflow.MeterFlagKbps | openflow.MeterFlagBurst,
		Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: kbit, Burst: max(kbit/part, minBurst)}},
	}
}
