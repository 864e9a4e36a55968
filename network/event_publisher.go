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

// publisher tell who wants to know what happens: subscribers of everything, and those beyond
// the controller of what is not too much.
type publisher struct {
	log            *slog.Logger
	publish        func(kind string, attrs any) // nil if nobody is there
	portLimiter    eventLimiter
	refusalLimiter eventLimiter  // of what is said of hosts at each switch
	misplacedLog   lograte.Limit // of links where end hosts are to be

	mu   sync.Mutex
	subs atomic.Pointer[[]func(Event)]
}

func newPublisher(c *Config) *publisher {
	e := &publisher{log: c.Log, publish: c.Publish}
	e.portLimiter.burst, e.refusalLimiter.burst, e.refusalLimiter.overall = eventBurst, refusalBurst, &lograte.Limit{Burst: totalRefusalBurst}
	e.subs.Store(&[]func(Event){})
	return e
}

func (t *publisher) subscribe(f func(Event)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	subs := append(slices.Clone(*t.subs.Load()), f)
	t.subs.Store(&subs)
}

// emit must be called without holding locks.
func (t *publisher) emit(e Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	for _, f := range *t.subs.Load() {
		f(e)
	}
	if t.publish == nil {
		return
	}
	leftOut, ok := t.portLimiter.allow(&e)
	if ok {
		e.LeftOut += leftOut
		t.publish("network."+e.Kind.String(), e)
	}
}

// run tells of what was left out last, until ctx ends.
func (t *publisher) run(ctx context.Context) {
	tick := time.NewTicker(eventLimiterIdle / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			t.reportLeftOut(now)
		}
	}
}

func (t *publisher) reportLeftOut(now time.Time) {
	for _, of := range []*eventLimiter{&t.portLimiter, &t.refusalLimiter} {
		for at, count := range of.expire(now) {
			t.emit(Event{Kind: EventsLeftOut, At: now, Switch: at.Switch, Port: at, LeftOut: count})
		}
	}
}

// refusalReasons are the reasons for which what is said of a host is not believed, in words.
var refusalReasons = map[hosts.Why]string{
	hosts.Full:     "the port, its switch or the table has as many hosts as may be, and none gives way",
	hosts.Pinned:   "the host or the address is pinned elsewhere, or is virtual",
	hosts.Answered: "the host that is known answers where it was",
	hosts.Crowded:  "more hosts are said to have moved than can be asked at once",
}

// hostRefused tells that what is said of a host at a port is not believed.
func (t *publisher) hostRefused(c hosts.Change) {
	now := time.Now()
	skipped, ok := t.refusalLimiter.allowAt(PortRef{Switch: c.From.Switch}, now)
	if !ok {
		return
	}
	args := []any{"port", c.From, "reason", refusalReasons[c.Why], "left_out", skipped}
	if !c.Host.MAC.IsZero() {
		args = append(args, "host", c.Host.MAC, "at", c.Host.At)
	}
	t.log.Warn("host not believed", args...)
	t.emit(Event{Kind: HostRefused, At: now, Switch: c.From.Switch, Port: c.From, Host: c.Host, Reason: refusalReasons[c.Why], LeftOut: skipped})
}

// linkMisplaced tells of a link that ends where the operator says that end hosts are. It
// is used all the same: it is there, and packets would go round in circles if it counted
// as a host's port.
func (t *publisher) linkMisplaced(l Link, at PortRef) {
	const reason = "the role of the port is access: somebody has connected a switch there, or network.switches.roles is wrong"
	t.misplacedLog.Warn(t.log, "link at a port for end hosts", "port", at, "from", l.From, "to", l.To, "reason", reason)
	t.emit(Event{Kind: LinkMisplaced, Switch: at.Switch, Port: at, Link: l, Reason: reason})
}

const (
	// eventBurst is how many events about hosts and the state of one port are published
	// at once; after that it is one a second.
	eventBurst = 32
	// refusalBurst is how many claims at one switch that are not believed are told at
	// once, and refusedInAll how many of all switches; after that it is one a second.
	refusalBurst, totalRefusalBurst = 10, 64
	// eventLimiterIdle is after how long without an event a port is forgotten, and what was
	// left out of it last is told.
	eventLimiterIdle = 10 * time.Second
)

// eventLimiter bounds the events that one port, or one switch, causes: who makes hosts come and go,
// or a port go up and down, must leave those who read the events something else. Subscribers
// within the controller are told of each.
type eventLimiter struct {
	burst int
	// overall, if set, bounds those of all together but for the first of each.
	overall *lograte.Limit

	mu    sync.Mutex
	ports map[PortRef]*portEvents // a switch is its port 0
}

// portEvents is what was told of a port.
type portEvents struct {
	limit   lograte.Limit
	leftOut int // beyond what its limit counts
	last    time.Time
}

// allow says whether an event is published, and how many of its port were left out before.
func (t *eventLimiter) allow(e *Event) (leftOut int, ok bool) {
	switch e.Kind {
	case HostAdded, HostMoved, HostRemoved, HostChanged, PortUp, PortDown:
	default:
		return 0, true
	}
	return t.allowAt(e.Port, e.At)
}

// allowAt says whether one more of a port is told, and how many were left out before.
func (t *eventLimiter) allowAt(at PortRef, now time.Time) (leftOut int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, known := t.ports[at]
	if !known {
		if t.ports == nil {
			t.ports = map[PortRef]*portEvents{}
		}
		p = &portEvents{limit: lograte.Limit{Burst: t.burst}}
		t.ports[at] = p
	}
	p.last = now
	skipped, ok := p.limit.Turn(now)
	p.leftOut += skipped
	if ok && t.overall != nil {
		if _, room := t.overall.Turn(now); !room && known {
			p.leftOut++
			return 0, false
		}
	}
	if ok {
		leftOut, p.leftOut = p.leftOut, 0
	}
	return leftOut, ok
}

// expire forgets the ports of which nothing was to be told lately, and returns those of
// which something was left out, and how much.
func (t *eventLimiter) expire(now time.Time) map[PortRef]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	leftOut := map[PortRef]int{}
	for at, p := range t.ports {
		if now.Sub(p.last) < eventLimiterIdle {
			continue
		}
		if n := p.limit.Skipped() + p.leftOut; n > 0 {
			leftOut[at] = n
		}
		delete(t.ports, at)
	}
	return leftOut
}
