package network

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// probeReceiver passes the frames and the hosts' answers that belong to a running examination to
// the goroutines that wait for them.
type probeReceiver struct {
	mu      sync.Mutex
	watched map[openflow.MAC]*probeStream
	answers map[netip.Addr]*hostAnswer // of hosts that are probed for their addresses
}

// probeStream is a series of frames with a source address of its own: those of one direction of a
// link, or of a burst.
type probeStream struct {
	mac     openflow.MAC
	mu      sync.Mutex // guards the data that onFrame and missing use
	onFrame func(at PortRef, frame []byte, now time.Time)
	missing func() bool // reports whether a frame is still awaited
	arrived signal      // set when a frame has arrived
	closed  bool
}

// watch registers onFrame for frames with the source address mac. onFrame and missing are called
// with the stream's mutex held.
func (e *probeReceiver) watch(mac openflow.MAC, onFrame func(PortRef, []byte, time.Time), missing func() bool) *probeStream {
	x := &probeStream{mac: mac, onFrame: onFrame, missing: missing, arrived: newSignal()}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watched == nil {
		e.watched = map[openflow.MAC]*probeStream{}
	}
	e.watched[mac] = x
	return x
}

// unwatch ends the registration. onFrame is not called after unwatch has returned.
func (e *probeReceiver) unwatch(x *probeStream) {
	e.mu.Lock()
	delete(e.watched, x.mac)
	e.mu.Unlock()
	x.locked(func() { x.closed = true }) // a receive that has found the stream already does nothing
}

// receive handles a frame whose source address may be watched. It runs on the switch's goroutine.
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

// locked calls f with the mutex held.
func (x *probeStream) locked(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// await waits until all expected frames have arrived or the timeout has passed.
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
