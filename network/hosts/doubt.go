package hosts

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Bounds of the claims that are in doubt at once: in all, by packets that came from one
// switch, and by those from one port. What is beyond is refused.
const (
	maxDoubts          = 4096
	maxDoubtsPerSwitch = 512
	maxDoubtsPerPort   = 128
	// askNewest is how many of a host's addresses are asked for, the newest: older ones
	// it may have given up.
	askNewest = 4
	// restAfterAnswer is for how many times Confirm claims about a host are refused
	// without asking again when it has answered.
	restAfterAnswer = 3
	// graces is how many times Grace a claim about a host waits at most until the host can
	// be asked.
	graces = 3
)

// Doubt is a claim about a host that is known elsewhere: that it has moved, or that its
// address is another's. It is believed unless the host answers where it was.
type Doubt struct {
	// Host is what is known, and Ask the addresses to ask for at its place. What comes
	// back is for Heard.
	Host topology.Host
	Ask  []netip.Addr

	about *entry
	by    arrival
	waits atomic.Bool
	begun time.Time
	again bool // it was asked for a second time
	end   atomic.Uint32
	// reached is when the question is known to have reached the host's switch, Unix
	// nanoseconds; zero if nobody will tell, under way until then.
	reached atomic.Int64
}

const (
	// underWay says that a question has not reached the host's switch yet.
	underWay = -1
	// reachWithin is how much longer than Confirm such a question is waited for.
	reachWithin = 3 * time.Second
	// slowBy is for how many times what the question took to reach the host's switch the
	// answer is waited for beyond Confirm: the switch forwards it no faster than that,
	// and it is queued at the host, on its way back and on its way up.
	slowBy = 3
)

// Waits says that the host cannot be asked yet: its switch is away, or has come only now.
func (x *Doubt) Waits() bool { return x.waits.Load() }

// UnderWay says that Reached will tell when the question has reached the host's switch:
// the time to answer counts from then, since a switch that stands still for a moment
// carries neither question nor answer.
func (x *Doubt) UnderWay() { x.reached.Store(underWay) }

// Reached says that the question has reached the host's switch.
func (x *Doubt) Reached(now time.Time) { x.reached.CompareAndSwap(underWay, now.UnixNano()) }

// answerable is for how long the host could have answered, less what its switch's
// slowness costs.
func (x *Doubt) answerable(now time.Time) time.Duration {
	age := now.Sub(x.begun)
	switch r := x.reached.Load(); r {
	case 0:
		return age
	case underWay:
		return age - reachWithin
	default:
		took := time.Unix(0, r).Sub(x.begun)
		return age - took - min(slowBy*took, reachWithin)
	}
}

// Outcome is what has become of a claim that was in doubt.
type Outcome uint32

// The outcomes.
const (
	// Open: the host has not answered yet.
	Open Outcome = iota
	// Denied: it has answered where it was.
	Denied
	// Confirmed: it has not.
	Confirmed
)

// Outcome tells what has become of the claim. It is known before the change that tells
// of it.
func (x *Doubt) Outcome() Outcome { return Outcome(x.end.Load()) }

// Patience is for how long a claim waits at most until its host can be asked.
func (t *Table) Patience() time.Duration { return t.opts.patience() }

func (o *Options) patience() time.Duration { return max(0, graces*o.Grace) }

// doubts are the claims that are in doubt; the table's mutex guards them.
type doubts struct {
	opts    *Options
	places  *places
	refused *refusals

	open     []*Doubt
	ports    map[topology.PortRef]int
	switches map[openflow.DatapathID]int
}

// Asked are those of a host's addresses that it is asked for where it was.
func Asked(all []netip.Addr) []netip.Addr { return all[max(0, len(all)-askNewest):] }

// doubtful says whether a claim about a host has to be confirmed: the host is elsewhere,
// and can be asked there, now or soon. The mutex is held.
func (d *doubts) doubtful(e *entry, a arrival) bool {
	s := e.state.Load()
	return d.opts.Confirm > 0 && !a.placed && e != a.confirmed && s.at != a.at && len(s.ips) > 0 &&
		(d.opts.askable(s.at) || d.places.awaited(s.at.Switch, a.now))
}

// askable says whether a host can be asked behind a port.
func (o *Options) askable(at topology.PortRef) bool {
	return o.Edge(at) && (o.Reachable == nil || o.Reachable(at))
}

// waits says whether a claim has to wait until its host can be asked; the mutex is held.
func (d *doubts) waits(x *Doubt, now time.Time) bool {
	return !d.opts.askable(x.Host.At) && d.places.awaited(x.Host.At.Switch, now) && now.Sub(x.by.now) < d.opts.patience()
}

// doubt notes a claim about a host, and tells that the host is to be asked, unless it is
// being asked, has answered a moment ago or cannot be asked yet. The mutex is held.
func (d *doubts) doubt(e *entry, a arrival) Change {
	switch {
	case e.doubt != nil:
		return Change{Kind: Doubted, From: a.at, Doubt: e.doubt}
	case a.now.Before(e.rests):
		e.noteElsewhere(a.at, a.now)
		return d.refused.refuse(e, a.at, Answered)
	case len(d.open) >= maxDoubts, d.ports[a.at] >= maxDoubtsPerPort, d.switches[a.at.Switch] >= maxDoubtsPerSwitch:
		return d.refused.refuse(e, a.at, Crowded)
	}
	h := e.host()
	ask := Asked(h.IPs)
	if slices.Contains(h.IPs, a.claim.addr) {
		ask = []netip.Addr{a.claim.addr}
	}
	e.doubt = &Doubt{Host: h, Ask: ask, about: e, by: a, begun: a.now}
	e.doubt.waits.Store(!d.opts.askable(h.At))
	d.open = append(d.open, e.doubt)
	d.ports[a.at]++
	d.switches[a.at.Switch]++
	return Change{Kind: Doubted, Host: h, From: a.at, Doubt: e.doubt, New: !e.doubt.Waits()}
}

// settle takes a claim out of doubt; the mutex is held.
func (d *doubts) settle(x *Doubt, end Outcome) {
	x.end.Store(uint32(end))
	d.open = slices.DeleteFunc(d.open, func(o *Doubt) bool { return o == x })
	if d.ports[x.by.at]--; d.ports[x.by.at] <= 0 {
		delete(d.ports, x.by.at)
	}
	if d.switches[x.by.at.Switch]--; d.switches[x.by.at.Switch] <= 0 {
		delete(d.switches, x.by.at.Switch)
	}
	x.about.doubt = nil
}

// Heard takes what a host has said to the controller at a port. If that is the answer
// to what it was asked because of a claim, the claim is refused.
func (t *Table) Heard(h *packet.Headers, at topology.PortRef, now time.Time) []Change {
	e, c := t.known.find(h.EthSrc, h.VLANID), claimOf(h, t.opts.Subnets)
	if e == nil || !c.addr.IsValid() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	x := e.doubt
	if x == nil || x.Host.At != at || !slices.Contains(x.Ask, c.addr) {
		return nil
	}
	t.doubts.settle(x, Denied)
	e.rests = now.Add(restAfterAnswer * t.opts.Confirm)
	e.noteElsewhere(x.by.at, now)
	refused := t.refused.refuse(e, x.by.at, Answered)
	refused.Doubt = x
	return []Change{refused}
}

// Due believes the claims that no answer has come for, and tells which hosts can be asked
// now, and which are to be asked once more, since a question may be lost. left says that
// claims are still in doubt.
func (t *Table) Due(now time.Time) (changes []Change, again []*Doubt, left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range slices.Clone(t.doubts.open) {
		known := t.known.find(x.about.mac, x.about.vlan) == x.about
		switch {
		case known && x.about.state.Load().at != x.Host.At: // somebody knows better
			t.doubts.settle(x, Confirmed)
			changes = append(changes, Change{Kind: Believed, Doubt: x})
			continue
		case known && t.doubts.waits(x, now):
			x.waits.Store(true) // also if its switch has left since it was asked
			continue
		case known && x.Waits() && t.opts.askable(x.Host.At):
			x.waits.Store(false)
			x.begun, x.again = now, false
			changes = append(changes, Change{Kind: Doubted, Host: x.Host, From: x.by.at, Doubt: x, New: true})
			continue
		case known && !x.Waits() && x.answerable(now) < t.opts.Confirm:
			if !x.again && now.Sub(x.begun) >= t.opts.Confirm/2 {
				x.again = true
				again = append(again, x)
			}
			continue
		}
		t.doubts.settle(x, Confirmed)
		changes = append(append(changes, Change{Kind: Believed, Doubt: x}), t.believe(x, now)...)
	}
	return changes, again, len(t.doubts.open) > 0
}

// believe makes a claim true; the mutex is held.
func (t *Table) believe(x *Doubt, now time.Time) []Change {
	a := x.by
	if e := t.known.find(a.mac, a.vlan); a.mac != x.about.mac && (e == nil || e.state.Load().at != a.at) {
		return nil // who claims the address has left
	}
	a.now, a.confirmed = now, x.about
	return t.learn(a)
}

// Place puts a host where somebody knows that it is, whatever was said before, and gives
// it its address. What was in doubt about either is over.
func (t *Table) Place(mac openflow.MAC, addr netip.Addr, at topology.PortRef, now time.Time) []Change {
	if !t.pins.Load().allow(mac, addr, at) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.learn(arrival{mac: mac, at: at, claim: claim{addr: addr}, now: now, placed: true})
}
