package agents

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
)

const (
	// settle is how long changes of the network are collected before agents are looked
	// for, findAgain how often those are whose place is unknown.
	settle    = 20 * time.Millisecond
	findAgain = 2 * time.Second
	// unpluggedFor is how long the port of an agent may be down before its sessions
	// are over: an end host that could reach the other directly must not wait
	// longer for an agent that nobody reaches, nor be reset by a port that flaps.
	unpluggedFor = 2500 * time.Millisecond
	// plugEvery is how often a port that is down is looked at.
	plugEvery = 50 * time.Millisecond
)

// Refresh takes in where agents stand now and looks for those not found yet.
func (r *Registry[C, R, L]) Refresh() {
	moved := false
	r.mu.Lock()
	for _, a := range r.list {
		missing := false
		for _, addr := range a.state.Addrs {
			if h, ok := r.Network.HostByIP(addr); ok {
				moved = a.place(addr, PlaceOf(h)) || moved
			} else if _, known := a.state.Places[addr]; !known {
				missing = true
			}
		}
		if missing && a.state.Liveness == Up && !a.searching {
			a.searching = r.tasks.Start(func(ctx context.Context) { r.find(ctx, a) })
		}
	}
	r.mu.Unlock()
	if moved {
		r.Changed()
	}
}

// find looks for the agent's addresses in the network, by ARP or neighbour
// discovery where they have not been seen.
func (r *Registry[C, R, L]) find(ctx context.Context, a *Agent[C]) {
	for _, addr := range a.State().Addrs {
		h, err := r.Network.ResolveHost(ctx, addr)
		r.mu.Lock()
		if err != nil {
			a.state.Error = "place of " + addr.String() + ": " + err.Error()
			a.missed[addr] = true
		} else {
			a.place(addr, PlaceOf(h))
			delete(a.missed, addr)
			a.state.Error = ""
		}
		r.mu.Unlock()
	}
	r.mu.Lock()
	a.searching = false
	r.mu.Unlock()
	r.Changed()
}

// portDown watches the agents that stand at a port which has gone down.
func (r *Registry[C, R, L]) portDown(at network.PortRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.list {
		if !a.state.Unplugged && slices.Contains(a.state.ports(), at) {
			a.state.Unplugged = r.tasks.Start(func(ctx context.Context) { r.watchPlug(ctx, a) })
		}
	}
}

// watchPlug ends the sessions of an agent that stays unplugged, and watches it
// until it is plugged in again or removed.
func (r *Registry[C, R, L]) watchPlug(ctx context.Context, a *Agent[C]) {
	over := time.Now().Add(unpluggedFor)
	for r.portsDown(a) && tasks.Sleep(ctx, plugEvery) == nil {
		if time.Now().After(over) {
			r.Lost(a, nil, errUnplugged)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.state.Unplugged = false
}

// portsDown reports whether every port at which a known agent stands is down. A
// switch that is not connected says nothing.
func (r *Registry[C, R, L]) portsDown(a *Agent[C]) bool {
	ports := r.portsOf(a)
	return len(ports) > 0 && !slices.ContainsFunc(ports, func(at network.PortRef) bool {
		up, known := r.Network.PortUp(at)
		return up || !known
	})
}

// portsOf lists the ports at which an agent stands; none when it was removed.
func (r *Registry[C, R, L]) portsOf(a *Agent[C]) []network.PortRef {
	if r.Get(a.Name) != a {
		return nil
	}
	s := a.State()
	return s.ports()
}
