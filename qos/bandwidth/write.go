package bandwidth

import (
	"context"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/guard"
	"github.com/sluice-net/sluice/qos/way"
	"github.com/sluice-net/sluice/service"
)

// writer writes the rules of flows, with the meters that they pass.
type writer struct{ Options }

// install writes the rules of a placement.
func (w *writer) install(ctx context.Context, f *flow, p placement, allowDown bool) error {
	var meter func(network.PortRef) uint32
	switch {
	case p.State == StateBestEffort:
		w.Guard.Ensure(ctx, f.guarded(p.Hops))
		meter = w.Guard.Meter
	case f.roams():
		w.Guard.Adjust(ctx, f.guarded(p.Hops))
		meter = w.police(ctx, f, []network.Hop{f.border(p.Hops)})
	default:
		w.Guard.Adjust(ctx, f.guarded(p.Hops))
		meter = w.police(ctx, f, p.Hops)
	}
	rules := program(f.Header, p.Hops, f.Idle, meter, w.seesTCPFlags)
	if f.roams() {
		rules = w.borderProgram(f, p.Hops, meter)
	}
	err := w.Rules.Apply(ctx, f.key(), rules, network.ApplyOptions{Waves: service.Waves(p.Hops), AllowDown: allowDown})
	if err == nil && p.State == StateBestEffort {
		w.unpolice(ctx, f)
	}
	if err == nil {
		w.Book.Settled(f.promise())
	}
	return err
}

// remove takes the rules of a flow away, and the meters that are its own.
func (w *writer) remove(ctx context.Context, f *flow) {
	if err := w.Rules.Remove(ctx, f.key()); err != nil {
		w.Log.Warn("removing the rules of a flow", "flow", f.Header, "error", err)
	}
	w.unpolice(ctx, f)
}

// seesTCPFlags is way.SeesTCPFlags.
func (w *writer) seesTCPFlags(d openflow.DatapathID) bool { return way.SeesTCPFlags(w.Network, d) }

// promiseBurst is the part of a second's traffic that the meter of an accepted flow lets
// through at once: TCP that is held to a rate gets all of it with a quarter of a second
// (99 to 102 % at round trips of 0, 20 and 80 ms), and 55 to 97 % with a tenth.
const promiseBurst = 4

// Directions of a flow.
const (
	there = iota
	back
	directions
)

var policeKeys = [directions]string{"police/", "police-back/"}

// policeKey is the name in the ledger of a meter that holds a flow to its promise.
func (f *flow) policeKey(direction int) string { return policeKeys[direction] + f.id }

// policeID is the number of that meter. Flows have low ones, for switches that have few
// meters, and leave out those of links.
func (f *flow) policeID(direction int) uint32 {
	id := uint32(directions*(f.Number-1)+direction) + 1
	if id < guard.MeterBase {
		return id
	}
	return id + guard.MeterBase
}

// police makes the meters that hold an accepted flow to what it is promised, so that what
// it sends beyond is nobody else's loss: one where it enters, and one where its answers
// do, if its definition says how much they are. It tells the meter for traffic out of a
// port. A switch that takes no meter leaves the flow as it is: then what it sends beyond
// its promise counts as traffic of others (package reserve), and is told.
func (w *writer) police(ctx context.Context, f *flow, hops []network.Hop) func(network.PortRef) uint32 {
	first, last := hops[0], hops[len(hops)-1]
	outs := [directions]network.PortRef{{Switch: first.Switch, Port: first.Out}, {Switch: last.Switch, Port: last.In}}
	rates := [directions]uint64{there: f.Rate}
	if f.HoldBack {
		rates[back] = f.Reverse
	}
	meters := map[network.PortRef]uint32{}
	each([]int{there, back}, func(direction int) {
		f.mu.Lock()
		unmetered := f.Unmetered[direction]
		f.mu.Unlock()
		if rates[direction] == 0 || unmetered {
			return
		}
		m := guard.MeterOf(outs[direction].Switch, f.policeID(direction), kilobits(rates[direction]), promiseBurst)
		err := w.Rules.Apply(ctx, f.policeKey(direction), network.Program{Meters: []network.Meter{m}}, network.ApplyOptions{AllowDown: true})
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

// unpolice takes the meters of a flow away. No rule uses them.
func (w *writer) unpolice(ctx context.Context, f *flow) {
	each([]int{there, back}, func(direction int) {
		if err := w.Rules.Remove(ctx, f.policeKey(direction)); err != nil {
			w.Log.Warn("removing the meter of a flow", "flow", f.Header, "error", err)
		}
	})
}

// kilobits is a rate as a meter has it, no less than in bit/s.
func kilobits(rate uint64) uint32 { return uint32(min((rate+999)/1000, 1<<31)) }
