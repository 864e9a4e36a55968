package network

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
)

// publisher passes every event to subscribers within the controller, and publishes events outside
// the controller at a bounded rate.
type publisher struct {
	log            *slog.Logger
	publish        func(kind string, attrs any) // nil if nothing is published
	portLimiter    eventLimiter
	refusalLimiter eventLimiter  // for refused claims about hosts, by switch
	misplacedLog   lograte.Limit // for links at ports for end hosts
	driftLimiter   eventLimiter  // for deviations from what is declared, by switch
	loopLog        lograte.Limit // for loops

	mu   sync.Mutex
	subs atomic.Pointer[[]func(Event)]
}

func newPublisher(c *Config) *publisher {
	e := &publisher{log: c.Log, publish: c.Publish}
	e.portLimiter.burst, e.refusalLimiter.burst, e.refusalLimiter.overall = eventBurst, refusalBurst, &lograte.Limit{Burst: totalRefusalBurst}
	e.driftLimiter.burst = driftBurst
	e.subs.Store(&[]func(Event){})
	return e
}

func (t *publisher) subscribe(f func(Event)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	subs := append(slices.Clone(*t.subs.Load()), f)
	t.subs.Store(&subs)
}

// emit passes an event to the subscribers, and publishes it unless there are too many. The caller
// must not hold locks.
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

// run reports, until ctx ends, the numbers of left-out events that no later event of the same port
// has reported.
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
	for _, of := range []*eventLimiter{&t.portLimiter, &t.refusalLimiter, &t.driftLimiter} {
		for at, count := range of.expire(now) {
			t.emit(Event{Kind: EventsLeftOut, At: now, Switch: at.Switch, Port: at, LeftOut: count})
		}
	}
}

// refusalReasons describes why a claim about a host is refused.
var refusalReasons = map[hosts.Reason]string{
	hosts.Full:          "the port, its switch or the table holds as many hosts as allowed, and none can be replaced",
	hosts.Pinned:        "the host or the address is pinned elsewhere, or is virtual",
	hosts.Answered:      "the known host still answers at its old port",
	hosts.TooManyClaims: "more hosts are said to have moved than can be probed at once",
}

// hostRefused reports a refused claim about a host at a port.
func (t *publisher) hostRefused(c hosts.Change) {
	now := time.Now()
	skipped, ok := t.refusalLimiter.allowAt(PortRef{Switch: c.From.Switch}, now)
	if !ok {
		return
	}
	args := []any{"port", c.From, "reason", refusalReasons[c.Reason], "left_out", skipped}
	if !c.Host.MAC.IsZero() {
		args = append(args, "host", c.Host.MAC, "at", c.Host.At)
	}
	t.log.Warn("claim about a host refused", args...)
	t.emit(Event{Kind: HostRefused, At: now, Switch: c.From.Switch, Port: c.From, Host: c.Host, Reason: refusalReasons[c.Reason], LeftOut: skipped})
}

// linkMisplaced reports a link that ends at a port that the operator has reserved for end hosts.
// The link is used nevertheless: it exists, and packets would loop if its port counted as a
// host's.
func (t *publisher) linkMisplaced(l Link, at PortRef) {
	const reason = "the role of the port is access: somebody has connected a switch there, or network.switches.roles is wrong"
	t.misplacedLog.Warn(t.log, "link at a port for end hosts", "port", at, "from", l.From, "to", l.To, "reason", reason)
	t.emit(Event{Kind: LinkMisplaced, Switch: at.Switch, Port: at, Link: l, Reason: reason})
}

// drifted reports the differences of a switch from what is declared. They were repaired unless err
// is set.
func (t *publisher) drifted(d openflow.DatapathID, drift []Deviation, pause time.Duration, err error) {
	now := time.Now()
	skipped, ok := t.driftLimiter.allowAt(PortRef{Switch: d}, now)
	if !ok {
		return
	}
	e := Event{Kind: SwitchDrifted, At: now, Switch: d, Drift: drift, Pause: pause, LeftOut: skipped}
	message, more := "a switch was not as declared, and was repaired", []any{"next_repair_after", pause, "left_out", skipped}
	if err != nil {
		e.Reason, message = err.Error(), "a switch is not as declared"
		more = append(more, "error", err)
	}
	for _, v := range drift {
		t.log.With("switch", d, "owner", v.Owner, "what", v.Object, "missing", v.Missing, "changed", v.Changed, "foreign", v.Foreign).Warn(message, more...)
	}
	t.emit(e)
}

// loop reports a port that is blocked because of a loop, or used again.
func (t *publisher) loop(kind EventKind, c discovery.Change) {
	e := Event{Kind: kind, Switch: c.Port.Switch, Port: c.Port, From: c.Other}
	if kind == LoopFound {
		e.Reason = LoopReason(discovery.Loop{Blocked: c.Port, Other: c.Other})
	}
	if skipped, ok := t.loopLog.Turn(time.Now()); ok {
		if kind == LoopFound {
			t.log.Warn("a port is blocked because of a loop", "port", c.Port, "other", c.Other, "reason", e.Reason, "left_out", skipped)
		} else {
			t.log.Info("a loop is gone: its port is used again", "port", c.Port, "other", c.Other, "left_out", skipped)
		}
	}
	t.emit(e)
}

// LoopReason returns a description of a loop, and advice what to do about it.
func LoopReason(l discovery.Loop) string {
	if l.Blocked == l.Other {
		return fmt.Sprintf("the network behind port %v has a loop: what is sent out comes back; find two ports there that are connected", l.Blocked)
	}
	return fmt.Sprintf("port %v is connected with port %v by a bridge that is not of this network, and is blocked so that nothing circulates; remove one of the two cables", l.Blocked, l.Other)
}

const (
	// driftBurst is the number of repairs of one switch that are reported at once. After that, one
	// repair a second is reported.
	driftBurst = 10
	// eventBurst is the number of events about the hosts and the state of one port that are
	// published at once. After that, one event a second is published.
	eventBurst = 32
	// refusalBurst and totalRefusalBurst are the numbers of refused claims that are reported at
	// once, at one switch and at all switches together. After that, one claim a second is
	// reported.
	refusalBurst, totalRefusalBurst = 10, 64
	// eventLimiterIdle is the time without events after which a port is forgotten, and the number
	// of its events that were left out is reported.
	eventLimiterIdle = 10 * time.Second
)

// eventLimiter bounds the published events that one port, or one switch, causes, so that a host or
// port that comes and goes does not crowd out others. Subscribers within the controller receive
// every event.
type eventLimiter struct {
	burst int
	// overall, if set, bounds the events of all ports together. It does not apply to the first
	// event of a port.
	overall *lograte.Limit

	mu    sync.Mutex
	ports map[PortRef]*portEvents // port 0 stands for its whole switch
}

// portEvents is the state of one port.
type portEvents struct {
	limit   lograte.Limit
	leftOut int // in addition to those that limit counts
	last    time.Time
}

// allow reports whether an event is published, and how many events of the same port were left out
// before it.
func (t *eventLimiter) allow(e *Event) (leftOut int, ok bool) {
	switch e.Kind {
	case HostAdded, HostMoved, HostRemoved, HostChanged, PortUp, PortDown, LoopFound, LoopGone:
	default:
		return 0, true
	}
	return t.allowAt(e.Port, e.At)
}

// allowAt reports whether one more event of a port is published, and how many were left out
// before.
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

// expire forgets ports without recent events. It returns the number of events that were left out,
// for each of these ports that has any.
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
