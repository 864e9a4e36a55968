package hosts

import (
	"maps"
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
	// maxAsked is the number of addresses for which a host is asked. These are its newest ones,
	// because it may no longer use older ones.
	maxAsked = 4
	// restAfterAnswer times Confirm is how long further claims about a host that has answered are
	// refused without asking it again.
	restAfterAnswer = 3
	// maxGraces times Grace is how long a claim waits at most until its host can be asked.
	maxGraces = 3
	// maxFollowed limits how often a claim to an address follows its holder to another port, and
	// asks there again. A holder that moves on and on must not keep the claim pending for ever.
	maxFollowed = 3
)

// Claim is a pending claim about a known host: that it has moved, or that another host has one of
// its addresses. The claim is accepted unless the host answers at its old place.
//
// A known host has at most one claim for each of its addresses, and one that it has moved. If
// several hosts claim the same address, the newest claim counts, because addresses may change hands
// twice before the known host has had its time to answer.
type Claim struct {
	target   *entry
	subject  netip.Addr // the claimed address; invalid if the host is said to have moved
	question atomic.Pointer[Question]
	since    time.Time   // when the claim was opened
	source   observation // the observation of the newest claimant
	// observed holds, for a claim that the host has moved, the observations from its packets since
	// then, one for each address: the host may have taken over several addresses.
	observed []observation
	waiting  atomic.Bool
	askedAt  time.Time
	repeated bool // the question was repeated
	followed int  // how often the holder was followed to another port
	outcome  atomic.Uint32
	// deliveredAt is the time, in Unix nanoseconds, at which the question reached the host's
	// switch. It is zero if nobody reports that time, and notDelivered until it is reported.
	deliveredAt atomic.Int64
}

// Question tells the caller how to ask a known host about a claim: by probes at the host's port for
// the addresses in Ask. The caller passes the answers to Table.HandleAnswer.
type Question struct {
	Host topology.Host
	Ask  []netip.Addr
}

// Question returns the question for the known host.
func (x *Claim) Question() Question { return *x.question.Load() }

const (
	// notDelivered marks a question that has not reached the host's switch yet.
	notDelivered = -1
	// maxDelivery is how much longer than Confirm a claim waits for such a question.
	maxDelivery = 3 * time.Second
	// deliveryFactor times the question's delivery time is added to Confirm, because the switch
	// forwards the answer no faster than the question. Further delays arise in the host's queue, on
	// the way back and on the way to the controller.
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

// AddressesToAsk returns those of a host's addresses for which the host is asked at its old place:
// the newest ones.
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
	at := x.Question().Host.At
	return !d.opts.askable(at) && d.places.mayReturn(at.Switch, now) && now.Sub(x.since) < d.opts.maxClaimWait()
}

// openClaim records a claim about a host and returns the change that tells the caller to ask the
// host. The subject is the claimed address, or invalid if the host is said to have moved. A further
// claim with the same subject joins the pending one. openClaim refuses a claim if the host has
// answered a moment ago, or if too many claims are pending. The mutex is held.
func (d *pendingClaims) openClaim(e *entry, subject netip.Addr, a observation) Change {
	x := e.claims[subject]
	switch {
	case x == nil && a.now.Before(e.quietUntil[subject]):
		e.countFlap(a.at, a.now)
		return d.refused.refuse(e, a.at, Answered)
	case x != nil && a.seen.Before(x.source.seen):
		return Change{Kind: ClaimPending, From: a.at, Claim: x}
	case x != nil && a.at == x.source.at:
		d.join(x, a)
		return Change{Kind: ClaimPending, From: a.at, Claim: x}
	case x == nil && len(d.open) >= maxClaims, d.ports[a.at] >= maxClaimsPerPort, d.switches[a.at.Switch] >= maxClaimsPerSwitch:
		return d.refused.refuse(e, a.at, TooManyClaims)
	case x != nil:
		d.uncount(x.source.at)
		x.observed = nil
		d.join(x, a)
		d.count(a.at)
		return Change{Kind: ClaimPending, From: a.at, Claim: x}
	}
	x = &Claim{target: e, subject: subject, since: a.now}
	d.join(x, a)
	x.ask(a.now)
	x.waiting.Store(!d.opts.askable(x.Question().Host.At))
	e.setClaim(subject, x)
	d.open = append(d.open, x)
	d.count(a.at)
	return Change{Kind: ClaimPending, Host: e.host(), From: a.at, Claim: x, New: !x.Waiting()}
}

// join makes an observation the newest of a claim. The mutex is held.
func (d *pendingClaims) join(x *Claim, a observation) {
	x.source = a
	i := slices.IndexFunc(x.observed, func(o observation) bool { return o.sender.addr == a.sender.addr })
	switch {
	case i >= 0:
		x.observed[i] = a
	case len(x.observed) < d.opts.MaxIPs:
		x.observed = append(x.observed, a)
	}
}

// ask sets the question to the present place of the claim's host. The time to answer begins.
func (x *Claim) ask(now time.Time) {
	h, ask := x.target.host(), []netip.Addr{x.source.sender.addr}
	if !slices.Contains(h.IPs, x.source.sender.addr) {
		ask = AddressesToAsk(h.IPs)
	}
	x.question.Store(&Question{Host: h, Ask: ask})
	x.askedAt, x.repeated = now, false
	x.deliveredAt.Store(0)
}

// count and uncount keep the numbers of claims by packets from a port and from its switch. The
// mutex is held.
func (d *pendingClaims) count(at topology.PortRef) {
	d.ports[at]++
	d.switches[at.Switch]++
}

func (d *pendingClaims) uncount(at topology.PortRef) {
	if d.ports[at]--; d.ports[at] <= 0 {
		delete(d.ports, at)
	}
	if d.switches[at.Switch]--; d.switches[at.Switch] <= 0 {
		delete(d.switches, at.Switch)
	}
}

// setClaim sets the pending claim to an address, or removes it if x is nil. The mutex is held.
func (e *entry) setClaim(subject netip.Addr, x *Claim) {
	if x == nil {
		delete(e.claims, subject)
	} else {
		if e.claims == nil {
			e.claims = map[netip.Addr]*Claim{}
		}
		e.claims[subject] = x
	}
	var contested []netip.Addr
	for addr := range e.claims {
		if addr.IsValid() {
			contested = append(contested, addr)
		}
	}
	e.contested.Store(&contested)
}

// isContested reports whether a claim to one of the host's addresses is pending.
func (e *entry) isContested(addr netip.Addr) bool {
	c := e.contested.Load()
	return c != nil && slices.Contains(*c, addr)
}

// settle ends a claim. The caller removes it from those that are open. The mutex is held.
func (d *pendingClaims) settle(x *Claim, end Outcome) {
	x.outcome.Store(uint32(end))
	d.uncount(x.source.at)
	x.target.setClaim(x.subject, nil)
}

// removeSettled removes the claims with a result from those that are open. The mutex is held.
func (d *pendingClaims) removeSettled() {
	d.open = slices.DeleteFunc(d.open, func(x *Claim) bool { return x.Outcome() != Pending })
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
	// The host is at its place, and has the address. That answers the claim to the address, and
	// the claim that the host has moved, but says nothing about its other addresses.
	var changes []Change
	for _, subject := range []netip.Addr{c.addr, {}} {
		x := e.claims[subject]
		if x == nil || x.Question().Host.At != at || !slices.Contains(x.Question().Ask, c.addr) {
			continue
		}
		t.claims.settle(x, Rejected)
		e.keepQuiet(subject, now, restAfterAnswer*t.opts.Confirm)
		e.countFlap(x.source.at, now)
		refused := t.refused.refuse(e, x.source.at, Answered)
		refused.Claim = x
		changes = append(changes, refused)
	}
	if len(changes) > 0 {
		t.claims.removeSettled()
	}
	return changes
}

// keepQuiet makes the table refuse further claims with the same subject for the duration d. The
// mutex is held.
func (e *entry) keepQuiet(subject netip.Addr, now time.Time, d time.Duration) {
	maps.DeleteFunc(e.quietUntil, func(_ netip.Addr, until time.Time) bool { return !now.Before(until) })
	if e.quietUntil == nil {
		e.quietUntil = map[netip.Addr]time.Time{}
	}
	e.quietUntil[subject] = now.Add(d)
}

// CheckClaims accepts the claims whose time to answer has passed. changes holds the changes that
// result, and one of kind ClaimPending for each host that can be asked only now. again holds the
// claims whose question is to be repeated because it may have been lost. left reports whether
// claims are still pending.
func (t *Table) CheckClaims(now time.Time) (changes []Change, again []*Claim, left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range slices.Clone(t.claims.open) {
		known := t.known.find(x.target.mac, x.target.vlan) == x.target
		moved := known && x.target.state.Load().at != x.Question().Host.At
		switch {
		case moved && !x.subject.IsValid(): // it has been moved by other means
			t.claims.settle(x, Confirmed)
			changes = append(changes, Change{Kind: ClaimAccepted, From: x.source.at, Claim: x})
			if x.target.state.Load().at == x.source.at {
				changes = append(changes, t.believe(x, now)...) // what it has claimed on its way
			}
			continue
		case moved && x.followed < maxFollowed && t.claims.needsConfirmation(x.target, x.source) && slices.Contains(x.target.state.Load().ips, x.subject):
			x.followed++
			x.ask(now)
			x.waiting.Store(true) // until the holder can be asked at its new port, which is checked next
		}
		switch {
		case known && t.claims.mustWait(x, now):
			x.waiting.Store(true) // its switch may have left after it was asked
			continue
		case known && x.Waiting() && t.opts.askable(x.Question().Host.At):
			x.waiting.Store(false)
			x.ask(now)
			changes = append(changes, Change{Kind: ClaimPending, Host: x.Question().Host, From: x.source.at, Claim: x, New: true})
			continue
		case known && !x.Waiting() && x.timeToAnswer(now) < t.opts.Confirm && !x.isMoot():
			if !x.repeated && now.Sub(x.askedAt) >= t.opts.Confirm/2 {
				x.repeated = true
				again = append(again, x)
			}
			continue
		}
		t.claims.settle(x, Confirmed)
		changes = append(append(changes, Change{Kind: ClaimAccepted, From: x.source.at, Claim: x}), t.believe(x, now)...)
	}
	t.claims.removeSettled()
	return changes, again, len(t.claims.open) > 0
}

// isMoot reports whether the host no longer has the claimed address anyway.
func (x *Claim) isMoot() bool {
	return x.subject.IsValid() && !slices.Contains(x.target.state.Load().ips, x.subject)
}

// believe applies an accepted claim. The mutex is held.
func (t *Table) believe(x *Claim, now time.Time) (changes []Change) {
	a := x.source
	a.now, a.confirmed = now, x.target
	if x.subject.IsValid() {
		e := t.known.find(a.mac, a.vlan)
		if e == nil {
			return nil // the claiming host has left
		}
		a.at = e.state.Load().at // it may have moved since
		return t.learn(a)
	}
	if !t.opts.Edge(a.at) {
		return nil // its port is down, or leads to a switch
	}
	for _, o := range x.observed {
		a.sender, a.seen = o.sender, o.seen
		changes = append(changes, t.learn(a)...)
	}
	return changes
}

// PendingClaim returns the pending claim that a packet from a port makes, or nil.
func (t *Table) PendingClaim(h *packet.Headers, at topology.PortRef) *Claim {
	e, c := t.known.find(h.EthSrc, h.VLANID), senderInfoOf(h, t.opts.Subnets)
	t.mu.Lock()
	defer t.mu.Unlock()
	if e != nil && e.state.Load().at != at {
		return e.claims[netip.Addr{}]
	}
	vlan := h.VLANID
	if t.opts.IgnoreVLAN {
		vlan = 0
	}
	if holder := t.ips.holder(c.addr, vlan); holder != nil && holder != e {
		return holder.claims[c.addr]
	}
	return nil
}

// Place moves a host to the port at which a service manages it, and gives the host its address,
// whatever packets have claimed. Pending claims about the host or the address have no effect
// afterwards.
func (t *Table) Place(mac openflow.MAC, addr netip.Addr, at topology.PortRef, now time.Time) []Change {
	if !t.pins.Load().allow(mac, addr, at) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.learn(observation{mac: mac, at: at, sender: senderInfo{addr: addr}, now: now, placed: true})
}
