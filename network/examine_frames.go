package network

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// examination is what is under way of the network's examination. Whoever receives a
// frame of it finds it here.
type examination struct {
	mu      sync.Mutex
	watched map[openflow.MAC]*examined
	answers map[netip.Addr]chan struct{} // of hosts that are asked for their addresses
}

// examined are frames under way with a source address of their own: those of one direction
// of a link, or of a burst.
type examined struct {
	mac     openflow.MAC
	mu      sync.Mutex // held by whoever uses what is examined
	take    func(at PortRef, frame []byte, now time.Time)
	missing func() bool // whether a frame is waited for
	arrived signal      // something has
	over    bool
}

// watch has the frames taken that have a source address. The functions are called under
// the mutex.
func (e *examination) watch(mac openflow.MAC, take func(PortRef, []byte, time.Time), missing func() bool) *examined {
	x := &examined{mac: mac, take: take, missing: missing, arrived: newSignal()}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watched == nil {
		e.watched = map[openflow.MAC]*examined{}
	}
	e.watched[mac] = x
	return x
}

// forget ends that. Nothing is taken once it has returned.
func (e *examination) forget(x *examined) {
	e.mu.Lock()
	delete(e.watched, x.mac)
	e.mu.Unlock()
	x.do(func() { x.over = true }) // who has found it before comes too late
}

// receive takes a frame whose sender may be watched. It runs on the switch's goroutine.
func (e *examination) receive(p *PacketIn) {
	e.mu.Lock()
	x := e.watched[p.Headers.EthSrc]
	e.mu.Unlock()
	if x == nil || p.InPort > openflow.PortMax {
		return
	}
	x.do(func() {
		if !x.over {
			x.take(PortRef{Switch: p.Switch.dpid, Port: p.InPort}, p.Data, p.At)
		}
	})
	x.arrived.set()
}

// do calls f under the mutex.
func (x *examined) do(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// await waits until everything has arrived that is waited for, or for as long as that
// may take.
func (x *examined) await(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var missing bool
		if x.do(func() { missing = x.missing() }); !missing {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-x.arrived:
		}
	}
}
