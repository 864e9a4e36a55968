package agents

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
)

const (
	// debounce is the time for which changes of the network are collected before agents are
	// searched for, and findInterval the interval at which agents without a known place are
	// searched for.
	debounce     = 20 * time.Millisecond
	findInterval = 2 * time.Second
	// unpluggedFor is how long the port of an agent may be down before the agent's sessions are
	// ended. It is short, because end hosts that could reach each other directly must not wait
	// longer for an agent that nobody reaches. It is long enough that a flapping port does not
	// reset connections.
	unpluggedFor = 2500 * time.Millisecond
	// plugInterval is the interval at which a port that is down is checked.
	plugInterval = 50 * time.Millisecond
)

// Refresh updates the places of agents, and starts a search for those that have not been found.
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

// portDown starts to watch the agents behind a port that has gone down.
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
	for r.portsDown(a) && tasks.Sleep(ctx, plugInterval) == nil {
		if time.Now().After(over) {
			r.Lost(a, nil, errUnplugged)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.state.Unplugged = false
}

// portsDown reports whether all ports to which a known agent is attached are down. The ports of a
// switch that is not connected count as up.
func (r *Registry[C, R, L]) portsDown(a *Agent[C]) bool {
	ports := r.portsOf(a)
	return len(ports) > 0 && !slices.ContainsFunc(ports, func(at network.PortRef) bool {
		up, known := r.Network.PortUp(at)
		return up || !known
	})
}

// portsOf returns the ports to which an agent is attached, or none if the agent was removed.
func (r *Registry[C, R, L]) portsOf(a *Agent[C]) []network.PortRef {
	if r.Get(a.Name) != a {
		return nil
	}
	s := a.State()
	return s.ports()
}
