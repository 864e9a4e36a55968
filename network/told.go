package network

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
)

const (
	// toldAtOnce is how many events about hosts and the state of one port are published
	// at once; after that it is one a second.
	toldAtOnce = 32
	// refusedAtOnce is how many claims at one switch that are not believed are told at
	// once, and refusedInAll how many of all switches; after that it is one a second.
	refusedAtOnce, refusedInAll = 10, 64
	// toldQuiet is after how long without an event a port is forgotten, and what was
	// left out of it last is told.
	toldQuiet = 10 * time.Second
)

// told bounds the events that one port, or one switch, causes: who makes hosts come and go,
// or a port go up and down, must leave those who read the events something else. Subscribers
// within the controller are told of each.
type told struct {
	burst int
	// all, if set, bounds those of all together but for the first of each.
	all *lograte.Limit

	mu    sync.Mutex
	ports map[PortRef]*toldPort // a switch is its port 0
}

// toldPort is what was told of a port.
type toldPort struct {
	limit   lograte.Limit
	leftOut int // beyond what its limit counts
	last    time.Time
}

// may says whether an event is published, and how many of its port were left out before.
func (t *told) may(e *Event) (leftOut int, may bool) {
	switch e.Kind {
	case HostAdded, HostMoved, HostRemoved, HostChanged, PortUp, PortDown:
	default:
		return 0, true
	}
	return t.turn(e.Port, e.At)
}

// turn says whether one more of a port is told, and how many were left out before.
func (t *told) turn(at PortRef, now time.Time) (leftOut int, may bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, known := t.ports[at]
	if !known {
		if t.ports == nil {
			t.ports = map[PortRef]*toldPort{}
		}
		p = &toldPort{limit: lograte.Limit{Burst: t.burst}}
		t.ports[at] = p
	}
	p.last = now
	skipped, may := p.limit.Turn(now)
	p.leftOut += skipped
	if may && t.all != nil {
		if _, room := t.all.Turn(now); !room && known {
			p.leftOut++
			return 0, false
		}
	}
	if may {
		leftOut, p.leftOut = p.leftOut, 0
	}
	return leftOut, may
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
		if n := p.limit.Skipped() + p.leftOut; n > 0 {
			leftOut[at] = n
		}
		delete(t.ports, at)
	}
	return leftOut
}
