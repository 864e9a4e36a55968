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

// Limits of the pending claims: in all, by packets from one switch, and by packets from one
// port. Further claims are refused.
const (
	maxClaims          = 4096
	maxClaimsPerSwitch = 512
	maxClaimsPerPort   = 128
	// maxAsked limits the addresses for which a host is asked, to the newest ones: it may no
	// longer use older ones.
	maxAsked = 4
	// restAfterAnswer times Confirm is how long further claims about a host are refused without
	// asking after it has answered.
	restAfterAnswer = 3
	// maxGraces times Grace is how long a claim waits at most until its host can be asked.
	maxGraces = 3
)

// Claim is a pending claim about a known host: that it has moved, or that another host has its
// address. The claim is accepted unless the host answers at its old place.
type Claim struct {
	// Host is the known host, and Ask the addresses to ask for at its place. The answers belong
	// to HandleAnswer.
	Host topology.Host
	Ask  []netip.Addr

	target   *entry
	source   observation
	waiting  atomic.Bool
	askedAt  time.Time
	repeated bool // the question was repeated
	outcome  atomic.Uint32
	// deliveredAt is the time, in Unix nanoseconds, at which the question reached the host's
	// switch. It is zero if nobody reports that time, and notDelivered until it is reported.
	deliveredAt atomic.Int64
}

const (
	// notDelivered marks a question that has not reached the host's switch yet.
	notDelivered = -1
	// maxDelivery is how much longer than Confirm a claim waits for such a question.
	maxDelivery = 3 * time.Second
	// deliveryFactor times the question's delivery time is added to Confirm: the switch forwards
	// the answer no faster than the question, and the question waits in the host's queue, on the
	// way back and on the way to the controller.
	deliveryFactor = 3
)

// Waiting reports whether the host cannot be asked yet, because its switch is away or has only
// just connected.
func (x *Claim) Waiting() bool { return x.waiting.Load() }

// MarkSent announces a call of MarkDelivered when the question has reached the host's switch. The time
// to answer then begins with that call, because a switch that stalls for a moment delays
// question and answer.
func (x *Claim) MarkSent() { x.deliveredAt.Store(notDelivered) }

// MarkDelivered records that the question has reached the host's switch.
func (x *Claim) MarkDelivered(now time.Time) {
	x.deliveredAt.CompareAndSwap(notDelivered, now.UnixNano())
}

// timeToAnswer returns how long the host has had to answer, without the time that a slow switch
// needs.
func (x *Claim) timeToAnswer(now time.Time) time.Duration {
	age := now.Sub(x.askedAt)
	switch r := x.deliveredAt.Load(); r {
	case 0:
		return age
	case notDelivered:
		return age - maxDelivery
	default:
		took := time.Unix(0, r).Sub(x.askedAt)
		return age - took - min(deliveryFactor*took, maxDelivery)
	}
}

// Outcome is the result of a claim.
type Outcome uint32

// The results of a claim.
const (
	// Pending means that the host has not answered yet.
	Pending Outcome = iota
	// Rejected means that the host has answered at its old place.
	Rejected
	// Confirmed means that the host has not answered in time.
	Confirmed
)

// Outcome returns the result. It is set before the change that reports it is returned.
func (x *Claim) Outcome() Outcome { return Outcome(x.outcome.Load()) }

// MaxClaimWait returns how long a claim waits at most until its host can be asked.
func (t *Table) MaxClaimWait() time.Duration { return t.opts.maxClaimWait() }

func (o *Options) maxClaimWait() time.Duration { return max(0, maxGraces*o.Grace) }

// pendingClaims holds the claims without a result; the table's mutex guards it.
type pendingClaims struct {
	opts    *Options
	places  *places
	refused *refusals

	open     []*Claim
	ports    map[topology.PortRef]int
	switches map[openflow.DatapathID]int
}

// AddressesToAsk returns those of a host's addresses for which it is asked at its old place.
func AddressesToAsk(all []netip.Addr) []netip.Addr { return all[max(0, len(all)-maxAsked):] }

// needsConfirmation reports whether a claim about a host has to be confirmed: the host is known
// at another port and can be asked there, now or soon. The mutex is held.
func (d *pendingClaims) needsConfirmation(e *entry, a observation) bool {
	s := e.state.Load()
	return d.opts.Confirm > 0 && !a.placed && e != a.confirmed && s.at != a.at && len(s.ips) > 0 &&
		(d.opts.askable(s.at) || d.places.mayReturn(s.at.Switch, a.now))
}

// askable reports whether a host can be asked behind a port.
func (o *Options) askable(at topology.PortRef) bool {
	return o.Edge(at) && (o.Reachable == nil || o.Reachable(at))
}

// mustWait reports whether a claim has to wait until its host can be asked. The mutex is held.
func (d *pendingClaims) mustWait(x *Claim, now time.Time) bool {
	return !d.opts.askable(x.Host.At) && d.places.mayReturn(x.Host.At.Switch, now) && now.Sub(x.source.now) < d.opts.maxClaimWait()
}

// openClaim records a claim about a host and returns the change that tells the caller to ask the
// host. It opens no second claim for a host. It refuses the claim if the host has answered a
// moment ago, or if too many claims are pending. The mutex is held.
func (d *pendingClaims) openClaim(e *entry, a observation) Change {
	switch {
	case e.claim != nil:
		return Change{Kind: ClaimPending, From: a.at, Claim: e.claim}
	case a.now.Before(e.quietUntil):
		e.countFlap(a.at, a.now)
		return d.refused.refuse(e, a.at, Answered)
	case len(d.open) >= maxClaims, d.ports[a.at] >= maxClaimsPerPort, d.switches[a.at.Switch] >= maxClaimsPerSwitch:
		return d.refused.refuse(e, a.at, TooManyClaims)
	}
	h := e.host()
	ask := AddressesToAsk(h.IPs)
	if slices.Contains(h.IPs, a.sender.addr) {
		ask = []netip.Addr{a.sender.addr}
	}
	e.claim = &Claim{Host: h, Ask: ask, target: e, source: a, askedAt: a.now}
	e.claim.waiting.Store(!d.opts.askable(h.At))
	d.open = append(d.open, e.claim)
	d.ports[a.at]++
	d.switches[a.at.Switch]++
	return Change{Kind: ClaimPending, Host: h, From: a.at, Claim: e.claim, New: !e.claim.Waiting()}
}

// settle ends a claim. The mutex is held.
func (d *pendingClaims) settle(x *Claim, end Outcome) {
	x.outcome.Store(uint32(end))
	d.open = slices.DeleteFunc(d.open, func(o *Claim) bool { return o == x })
	if d.ports[x.source.at]--; d.ports[x.source.at] <= 0 {
		delete(d.ports, x.source.at)
	}
	if d.switches[x.source.at.Switch]--; d.switches[x.source.at.Switch] <= 0 {
		delete(d.switches, x.source.at.Switch)
	}
	x.target.claim = nil
}

// HandleAnswer handles a packet that a host has sent to the controller at a port. If it answers
// the question about a claim, the claim is refused.
func (t *Table) HandleAnswer(h *packet.Headers, at topology.PortRef, now time.Time) []Change {
	e, c := t.known.find(h.EthSrc, h.VLANID), senderInfoOf(h, t.opts.Subnets)
	if e == nil || !c.addr.IsValid() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	x := e.claim
	if x == nil || x.Host.At != at || !slices.Contains(x.Ask, c.addr) {
		return nil
	}
	t.claims.settle(x, Rejected)
	e.quietUntil = now.Add(restAfterAnswer * t.opts.Confirm)
	e.countFlap(x.source.at, now)
	refused := t.refused.refuse(e, x.source.at, Answered)
	refused.Claim = x
	return []Change{refused}
}

// CheckClaims accepts the claims whose time to answer has passed. It also returns the hosts that
// can be asked now, as changes, and the claims whose question is to be repeated because it may
// have been lost. left reports whether claims are still pending.
func (t *Table) CheckClaims(now time.Time) (changes []Change, again []*Claim, left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range slices.Clone(t.claims.open) {
		known := t.known.find(x.target.mac, x.target.vlan) == x.target
		switch {
		case known && x.target.state.Load().at != x.Host.At: // the host has been moved by other means
			t.claims.settle(x, Confirmed)
			changes = append(changes, Change{Kind: ClaimAccepted, Claim: x})
			continue
		case known && t.claims.mustWait(x, now):
			x.waiting.Store(true) // its switch may have left after it was asked
			continue
		case known && x.Waiting() && t.opts.askable(x.Host.At):
			x.waiting.Store(false)
			x.askedAt, x.repeated = now, false
			changes = append(changes, Change{Kind: ClaimPending, Host: x.Host, From: x.source.at, Claim: x, New: true})
			continue
		case known && !x.Waiting() && x.timeToAnswer(now) < t.opts.Confirm:
			if !x.repeated && now.Sub(x.askedAt) >= t.opts.Confirm/2 {
				x.repeated = true
				again = append(again, x)
			}
			continue
		}
		t.claims.settle(x, Confirmed)
		changes = append(append(changes, Change{Kind: ClaimAccepted, Claim: x}), t.believe(x, now)...)
	}
	return changes, again, len(t.claims.open) > 0
}

// believe applies an accepted claim. The mutex is held.
func (t *Table) believe(x *Claim, now time.Time) []Change {
	a := x.source
	if e := t.known.find(a.mac, a.vlan); a.mac != x.target.mac && (e == nil || e.state.Load().at != a.at) {
		return nil // the claiming host has left
	}
	a.now, a.confirmed = now, x.target
	return t.learn(a)
}

// Place moves a host to the port at which a service manages it, and gives it its address,
// whatever packets said before. It ends pending claims about both.
func (t *Table) Place(mac openflow.MAC, addr netip.Addr, at topology.PortRef, now time.Time) []Change {
	if !t.pins.Load().allow(mac, addr, at) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.learn(observation{mac: mac, at: at, sender: senderInfo{addr: addr}, now: now, placed: true})
}
