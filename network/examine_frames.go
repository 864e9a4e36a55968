package network

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// probeReceiver is what is under way of the network's examination. Whoever receives a
// frame of it finds it here.
type probeReceiver struct {
	mu      sync.Mutex
	watched map[openflow.MAC]*probeStream
	answers map[netip.Addr]chan struct{} // of hosts that are asked for their addresses
}

// probeStream are frames under way with a source address of their own: those of one direction
// of a link, or of a burst.
type probeStream struct {
	mac     openflow.MAC
	mu      sync.Mutex // held by whoever uses what is examined
	onFrame func(at PortRef, frame []byte, now time.Time)
	missing func() bool // whether a frame is waited for
	arrived signal      // something has
	closed  bool
}

// watch has the frames taken that have a source address. The functions are called under
// the mutex.
func (e *probeReceiver) watch(mac openflow.MAC, take func(PortRef, []byte, time.Time), missing func() bool) *probeStream {
	x := &probeStream{mac: mac, onFrame: take, missing: missing, arrived: newSignal()}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watched == nil {
		e.watched = map[openflow.MAC]*probeStream{}
	}
	e.watched[mac] = x
	return x
}

// unwatch ends that. Nothing is taken once it has returned.
func (e *probeReceiver) unwatch(x *probeStream) {
	e.mu.Lock()
	delete(e.watched, x.mac)
	e.mu.Unlock()
	x.locked(func() { x.closed = true }) // who has found it before comes too late
}

// receive takes a frame whose sender may be watched. It runs on the switch's goroutine.
func (e *probeReceiver) receive(p *PacketIn) {
	e.mu.Lock()
	x := e.watched[p.Headers.EthSrc]
	e.mu.Unlock()
	if x == nil || p.InPort > openflow.PortMax {
		return
	}
	x.locked(func() {
		if !x.closed {
			x.onFrame(PortRef{Switch: p.Switch.dpid, Port: p.InPort}, p.Data, p.At)
		}
	})
	x.arrived.set()
}

// locked calls f under the mutex.
func (x *probeStream) locked(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// await waits until everything has arrived that is waited for, or for as long as that
// may take.
func (x *probeStream) await(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		var missing bool
		if x.locked(func() { missing = x.missing() }); !missing {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-x.arrived:
		}
	}
}
