package network

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/network/hosts"
)

// events tell who wants to know what happens: subscribers of everything, and those beyond
// the controller of what is not too much.
type events struct {
	log       *slog.Logger
	publish   func(kind string, attrs any) // nil if nobody is there
	told      told
	refused   told          // of what is said of hosts at each switch
	misplaced lograte.Limit // of links where end hosts are to be

	mu   sync.Mutex
	subs atomic.Pointer[[]func(Event)]
}

func newEvents(c *Config) *events {
	e := &events{log: c.Log, publish: c.Publish}
	e.told.burst, e.refused.burst, e.refused.all = toldAtOnce, refusedAtOnce, &lograte.Limit{Burst: refusedInAll}
	e.subs.Store(&[]func(Event){})
	return e
}

func (t *events) subscribe(f func(Event)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	subs := append(slices.Clone(*t.subs.Load()), f)
	t.subs.Store(&subs)
}

// emit must be called without holding locks.
func (t *events) emit(e Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	for _, f := range *t.subs.Load() {
		f(e)
	}
	if t.publish == nil {
		return
	}
	leftOut, may := t.told.may(&e)
	if may {
		e.LeftOut += leftOut
		t.publish("network."+e.Kind.String(), e)
	}
}

// run tells of what was left out last, until ctx ends.
func (t *events) run(ctx context.Context) {
	tick := time.NewTicker(toldQuiet / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			t.tellLeftOut(now)
		}
	}
}

func (t *events) tellLeftOut(now time.Time) {
	for _, of := range []*told{&t.told, &t.refused} {
		for at, count := range of.quiet(now) {
			t.emit(Event{Kind: EventsLeftOut, At: now, Switch: at.Switch, Port: at, LeftOut: count})
		}
	}
}

// refusals are the reasons for which what is said of a host is not believed, in words.
var refusals = map[hosts.Why]string{
	hosts.Full:     "the port, its switch or the table has as many hosts as may be, and none gives way",
	hosts.Pinned:   "the host or the address is pinned elsewhere, or is virtual",
	hosts.Answered: "the host that is known answers where it was",
	hosts.Crowded:  "more hosts are said to have moved than can be asked at once",
}

// hostRefused tells that what is said of a host at a port is not believed.
func (t *events) hostRefused(c hosts.Change) {
	now := time.Now()
	skipped, turn := t.refused.turn(PortRef{Switch: c.From.Switch}, now)
	if !turn {
		return
	}
	args := []any{"port", c.From, "reason", refusals[c.Why], "left_out", skipped}
	if !c.Host.MAC.IsZero() {
		args = append(args, "host", c.Host.MAC, "at", c.Host.At)
	}
	t.log.Warn("host not believed", args...)
	t.emit(Event{Kind: HostRefused, At: now, Switch: c.From.Switch, Port: c.From, Host: c.Host, Reason: refusals[c.Why], LeftOut: skipped})
}

// linkMisplaced tells of a link that ends where the operator says that end hosts are. It
// is used all the same: it is there, and packets would go round in circles if it counted
// as a host's port.
func (t *events) linkMisplaced(l Link, at PortRef) {
	const reason = "the role of the port is access: somebody has connected a switch there, or network.switches.roles is wrong"
	t.misplaced.Warn(t.log, "link at a port for end hosts", "port", at, "from", l.From, "to", l.To, "reason", reason)
	t.emit(Event{Kind: LinkMisplaced, Switch: at.Switch, Port: at, Link: l, Reason: reason})
}

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
