package network

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
)

const (
	// toldAtOnce is how many events about hosts and the state of one port are published
	// at once; after that it is one a second.
	toldAtOnce = 32
	// toldQuiet is after how long without an event a port is forgotten, and what was
	// left out of it last is told.
	toldQuiet = 10 * time.Second
)

// told bounds the events that one port causes: who makes hosts come and go, or a port go
// up and down, must leave those who read the events something else. Subscribers within
// the controller are told of each.
type told struct {
	mu    sync.Mutex
	ports map[PortRef]*toldPort
}

// toldPort is what was told of a port.
type toldPort struct {
	limit lograte.Limit
	last  time.Time
}

// may says whether an event is published, and how many of its port were left out before.
func (t *told) may(e *Event) (leftOut int, may bool) {
	switch e.Kind {
	case HostAdded, HostMoved, HostRemoved, HostChanged, PortUp, PortDown:
	default:
		return 0, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.ports[e.Port]
	if p == nil {
		if t.ports == nil {
			t.ports = map[PortRef]*toldPort{}
		}
		p = &toldPort{limit: lograte.Limit{Burst: toldAtOnce}}
		t.ports[e.Port] = p
	}
	p.last = e.At
	return p.limit.Turn(e.At)
}

// quiet forgets the ports of which nothing was to be told lately, and returns those of
// which something was left out, and how much.
func (t *told) quiet(now time.Time) map[PortRef]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	leftOut := map[PortRef]int{}
	for at, p := range t.ports {
		if now.Sub(p.last) < toldQuiet {
			continue
		}
		if n := p.limit.Skipped(); n > 0 {
			leftOut[at] = n
		}
		delete(t.ports, at)
	}
	return leftOut
}

// runTold tells of what was left out last.
func (n *Network) runTold(ctx context.Context) {
	tick := time.NewTicker(toldQuiet / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			n.tellLeftOut(now)
		}
	}
}

func (n *Network) tellLeftOut(now time.Time) {
	for at, count := range n.told.quiet(now) {
		n.emit(Event{Kind: EventsLeftOut, At: now, Switch: at.Switch, Port: at, LeftOut: count})
	}
}
