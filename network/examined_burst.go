package network

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/openflow"
)

// examinedBurst is a burst whose frames are under way.
type examinedBurst struct {
	mu      sync.Mutex
	burst   *linkprobe.Burst
	arrived chan struct{} // something has
	over    bool
}

func (x *examinedBurst) send(i int) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.burst.Send(i, time.Now())
}

func (x *examinedBurst) waiting() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.burst.Waiting()
}

// receive takes a frame of the burst. It runs on the switch's goroutine.
func (x *examinedBurst) receive(p *PacketIn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	x.burst.Receive(PortRef{Switch: p.Switch.dpid, Port: p.InPort}, p.Data, p.At)
	select {
	case x.arrived <- struct{}{}:
	default:
	}
}

// watchBurst has the frames of a burst taken.
func (e *examination) watchBurst(x *examinedBurst) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bursts == nil {
		e.bursts = map[openflow.MAC]*examinedBurst{}
	}
	e.bursts[x.burst.MAC] = x
}

// forgetBurst ends that. Nothing is received once it has returned.
func (e *examination) forgetBurst(x *examinedBurst) {
	e.mu.Lock()
	delete(e.bursts, x.burst.MAC)
	e.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true // who has found it before comes too late
}
