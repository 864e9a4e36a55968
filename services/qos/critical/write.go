package critical

import (
	"context"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/guard"
)

// writer writes the rules of flows, and the meters that they pass.
type writer struct{ Options }

// install writes the rules of a placement.
func (w *writer) install(ctx context.Context, f *flow, p placement, allowDown bool) error {
	var meter func(network.PortRef) uint32
	switch {
	case p.State == StateBestEffort:
		w.Guard.Ensure(ctx, f.guardedLinks(p.Hops))
		meter = w.Guard.Meter
	case f.isMobile():
		w.Guard.Adjust(ctx, f.guardedLinks(p.Hops))
		meter = w.installMeters(ctx, f, []network.Hop{f.borderHop(p.Hops)})
	default:
		w.Guard.Adjust(ctx, f.guardedLinks(p.Hops))
		meter = w.installMeters(ctx, f, p.Hops)
	}
	rules := pathRules(f.Header, p.Hops, f.Idle, meter, w.matchesTCPFlags)
	if f.isMobile() {
		rules = w.borderRules(f, p.Hops, meter)
	}
	err := w.Rules.Apply(ctx, f.key(), rules, network.ApplyOptions{Waves: kit.Waves(p.Hops), AllowDown: allowDown})
	if err == nil && p.State == StateBestEffort {
		w.removeMeters(ctx, f)
	}
	if err == nil {
		w.Book.RulesInstalled(f.promiseKey())
	}
	return err
}

// remove removes the rules of a flow, and its own meters.
func (w *writer) remove(ctx context.Context, f *flow) {
	if err := w.Rules.Remove(ctx, f.key()); err != nil {
		w.Log.Warn("removing the rules of a flow", "flow", f.Header, "error", err)
	}
	w.removeMeters(ctx, f)
}

// matchesTCPFlags calls flowpath.MatchesTCPFlags.
func (w *writer) matchesTCPFlags(d openflow.DatapathID) bool {
	return flowpath.MatchesTCPFlags(w.Network, d)
}

// promiseBurst is the divisor that gives the burst of an accepted flow's meter: the traffic of one
// second, divided by promiseBurst. TCP that is limited to a rate reaches all of it with the burst
// of a quarter of a second (99 to 102 % at round trips of 0, 20 and 80 ms), and 55 to 97 % with
// that of a tenth.
const promiseBurst = 4

var meterKeys = [directions]string{"police/", "police-back/"}

// meterKey returns the key in the ledger of a meter that limits a flow to its promise.
func (f *flow) meterKey(direction int) string { return meterKeys[direction] + f.id }

// meterID returns the number of the meter that limits a flow to its promise in one direction. The
// numbers are low, for switches that support few meters, and leave out the numbers of links'
// meters.
func (f *flow) meterID(direction int) uint32 {
	id := uint32(directions*(f.Number-1)+direction) + 1
	if id < guard.MeterBase {
		return id
	}
	return id + guard.MeterBase
}

// installMeters creates the meters that limit an accepted flow to its promise, so that traffic
// beyond it harms only the flow itself. One meter is where the flow enters. If the flow's
// definition sets the rate of its answers, another is where these enter. It returns a function that
// returns the meter for traffic out of a port. If a switch refuses meters, the flow is not limited:
// traffic beyond its promise then counts as traffic of others (package reserve), and is reported.
func (w *writer) installMeters(ctx context.Context, f *flow, hops []network.Hop) func(network.PortRef) uint32 {
	first, last := hops[0], hops[len(hops)-1]
	outs := [directions]network.PortRef{{Switch: first.Switch, Port: first.Out}, {Switch: last.Switch, Port: last.In}}
	rates := [directions]uint64{forward: f.Rate}
	if f.HoldBack {
		rates[reverse] = f.Reverse
	}
	meters := map[network.PortRef]uint32{}
	each([]int{forward, reverse}, func(direction int) {
		f.mu.Lock()
		unmetered := f.Unmetered[direction]
		f.mu.Unlock()
		if rates[direction] == 0 || unmetered {
			return
		}
		m := guard.NewMeter(outs[direction].Switch, f.meterID(direction), kilobits(rates[direction]), promiseBurst)
		err := w.Rules.Apply(ctx, f.meterKey(direction), network.Program{Meters: []network.Meter{m}}, network.ApplyOptions{AllowDown: true})
		if err != nil {
			w.Log.Warn("a flow is not held to what it is promised", "flow", f.Header, "switch", m.Switch, "error", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.Unmetered[direction] = err != nil; err == nil {
			meters[outs[direction]] = m.ID
		}
	})
	return func(at network.PortRef) uint32 { return meters[at] }
}

// removeMeters removes the meters of a flow, which no rule uses any more.
func (w *writer) removeMeters(ctx context.Context, f *flow) {
	each([]int{forward, reverse}, func(direction int) {
		if err := w.Rules.Remove(ctx, f.meterKey(direction)); err != nil {
			w.Log.Warn("removing the meter of a flow", "flow", f.Header, "error", err)
		}
	})
}

// kilobits returns a rate in bit/s as a meter's rate, rounded up.
func kilobits(rate uint64) uint32 { return uint32(min((rate+999)/1000, 1<<31)) }
