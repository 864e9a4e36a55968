package bandwidth

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// meterBase is added to a port's number to make its meter's.
	meterBase = 0x4000
	// floor is the part of a link that best effort always gets, in percent: a flow
	// that cannot be accepted is slow, not cut off.
	floor = 2
	// burstShare is the part of a second's traffic that a meter lets through at once,
	// and minBurst the least, in kbit: a dozen packets of full size.
	burstShare = 20
	minBurst   = 144
)

// guard keeps the meters that hold best-effort flows to what is not promised: one for
// each link that such flows go by, which they share.
type guard struct {
	s      *Service
	mu     sync.Mutex
	meters map[network.PortRef]*meterState
}

// meterState is the meter of a link.
type meterState struct {
	kbit uint32 // zero if the switch has refused it
	used time.Time
}

func newGuard(s *Service) *guard { return &guard{s: s, meters: map[network.PortRef]*meterState{}} }

// meter is the meter for traffic out of a port, zero if it has none.
func (g *guard) meter(at network.PortRef) uint32 {
	if g.kbit(at) == 0 {
		return 0
	}
	return meterBase + at.Port
}

// kbit is the rate of a link's meter, zero if it has none.
func (g *guard) kbit(at network.PortRef) uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.meters[at]; m != nil {
		return m.kbit
	}
	return 0
}

// ensure makes the meters of links that have none.
func (g *guard) ensure(ctx context.Context, links []network.PortRef) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range links {
		if m := g.meters[at]; m != nil {
			m.used = time.Now()
		} else if want := g.leave(at); want > 0 && at.Port < meterBase {
			g.set(ctx, at, want)
		}
	}
}

// adjust changes the meters of links, where there are any, after something has been
// promised or given up.
func (g *guard) adjust(ctx context.Context, links []network.PortRef) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range links {
		if m := g.meters[at]; m != nil && m.kbit > 0 {
			if want := g.leave(at); want > 0 && want != m.kbit {
				g.set(ctx, at, want)
			}
		}
	}
}

// revive declares a meter of before the start.
func (g *guard) revive(ctx context.Context, at network.PortRef, kbit uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.meters[at] == nil && kbit > 0 {
		g.set(ctx, at, kbit)
	}
}

// set writes a link's meter. The lock is held.
func (g *guard) set(ctx context.Context, at network.PortRef, kbit uint32) {
	p := network.Program{Meters: []network.Meter{meterOf(at, kbit)}}
	if err := g.s.rules.Apply(ctx, guardKey(at), p, network.ApplyOptions{AllowDown: true}); err != nil {
		g.s.log.Warn("best effort is not held back on a link", "from", at, "error", err)
		kbit = 0
	}
	g.meters[at] = &meterState{kbit: kbit, used: time.Now()}
}

// leave is what a link leaves to best effort, in kbit/s; zero while its capacity is not known.
func (g *guard) leave(at network.PortRef) uint32 {
	capacity := g.s.fabric.Use(at).Capacity
	left := max(capacity-min(g.s.book.Promised(at), capacity), capacity*floor/100)
	return uint32(min(left/1000, 1<<31))
}

func meterOf(at network.PortRef, kbit uint32) network.Meter {
	return network.Meter{
		Switch: at.Switch, ID: meterBase + at.Port, Flags: openflow.MeterFlagKbps | openflow.MeterFlagBurst,
		Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: kbit, Burst: max(kbit/burstShare, minBurst)}},
	}
}

func guardKey(at network.PortRef) string { return "guard/" + at.String() }

// unusedFor is how long no flow must have passed a meter before it is removed: longer
// than a flow's rules take to be written.
const unusedFor = 2 * placeFor

// sweep takes meters away that no flow passes any more, and follows the capacities of
// the others.
func (g *guard) sweep(ctx context.Context) {
	used := map[network.PortRef]bool{}
	for _, f := range g.s.all() {
		if p, err := g.s.present(f); err == nil && p.state == StateBestEffort {
			for _, at := range links(p.path) {
				used[at] = true
			}
		}
	}
	g.adjust(ctx, slices.Collect(maps.Keys(used)))
	g.mu.Lock()
	defer g.mu.Unlock()
	for at, m := range g.meters {
		switch {
		case used[at]:
			m.used = time.Now()
		case time.Since(m.used) >= unusedFor:
			if err := g.s.rules.Remove(ctx, guardKey(at)); err == nil {
				delete(g.meters, at)
			}
		}
	}
}
