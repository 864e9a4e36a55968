package mobile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
	"github.com/sluice-net/sluice/services/handover/mobile/policy"
)

// Errors of moves.
var (
	ErrUnknown      = errors.New("the daemon has no such interface")
	ErrNoLink       = errors.New("the interface has no link")
	ErrReplaced     = errors.New("another move was asked for meanwhile")
	errLinkLost     = fmt.Errorf("%w any more", ErrNoLink)
	errOtherAddress = errors.New("the network there gives the device another address")
)

// An interface that failed is not used for backoffMin, which doubles with each failure up to
// backoffMax. A probe that is answered more than backoffAnswered after the start of the back-off ends
// it. backoffAnswered is longer than the controller takes by default to notice that a place has lost
// its path to the border ports, and to stop answering there.
const (
	backoffMin      = time.Second
	backoffMax      = 30 * time.Second
	backoffAnswered = 5 * time.Second
)

// Move is a move that was made or tried.
type Move struct {
	At   time.Time `json:"at"`
	From string    `json:"from,omitempty"`
	To   string    `json:"to"`
	Why  string    `json:"why"`
	// MakeBeforeBreak reports whether the old interface had a link until the end.
	MakeBeforeBreak bool `json:"make_before_break"`
	// Lease is how long it took to get the lease, and Switch how long it took to change the
	// datapath.
	Lease  time.Duration `json:"lease_ns"`
	Switch time.Duration `json:"switch_ns,omitempty"`
	// Address is the device's address after the move.
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"`
}

// attempt is a move in progress.
type attempt struct {
	target  *iface
	from    *iface // nil if there is none, or if it is the target
	why     string
	started time.Time
	cancel  context.CancelFunc
	// both reports whether the datapath receives on from and target.
	both    bool
	waiting []chan<- result
}

// result is the result of a move.
type result struct {
	move Move
	err  error
}

// decide chooses an interface. It begins a move if the chosen interface is not the active one, or if
// the device has to join its network again.
func (d *Daemon) decide() {
	now := time.Now()
	if !d.requestedUntil.IsZero() && !now.Before(d.requestedUntil) {
		d.requested, d.requestedUntil = "", time.Time{}
	}
	for _, i := range d.interfaces {
		if i.link.Present && !i.attached && !now.Before(i.backoff.until) {
			d.attach(i)
		}
	}
	var choice policy.Choice
	if d.attempt == nil {
		choice = d.selector.Choose(d.situation(now), d.candidates(now))
		if i := d.find(choice.Use); i != nil && (i != d.active || !i.joined) {
			why := choice.Why
			if i == d.active {
				why = "its link is new"
			}
			d.begin(i, why, nil)
		}
	}
	d.schedule(now, choice.Again)
}

// situation returns the state that the policy starts from.
func (d *Daemon) situation(now time.Time) policy.Now {
	s := policy.Now{Time: now, Since: d.since, Requested: d.requested}
	if d.active != nil {
		s.Current = d.active.Name
	}
	return s
}

// candidates returns the interfaces as the policy sees them.
func (d *Daemon) candidates(now time.Time) []policy.Candidate {
	out := make([]policy.Candidate, len(d.interfaces))
	for n, i := range d.interfaces {
		out[n] = policy.Candidate{
			Name: i.Name, Link: i.usable(), Signal: i.radio.Signal,
			Loss: i.sample.Loss, Probes: i.sample.Probes, Cost: i.Cost,
			Silent: i.sample.Silent, Answers: d.answers(i),
		}
		if now.Before(i.backoff.until) {
			out[n].Barred, out[n].LastResort = i.backoff.why, d.lastResort(i, now)
		}
	}
	return out
}

// lastResort reports whether an interface in back-off may be used if there is nothing else: it
// must have answered since the back-off began.
func (d *Daemon) lastResort(i *iface, now time.Time) bool {
	if i.sample.Silent || !i.sample.Answered.After(i.backoff.since) {
		return false
	}
	// The back-off still holds between two networks that answer at their edges but forward no packets:
	// otherwise the device would alternate between them without a pause.
	cutOff := d.active == nil || !d.active.usable()
	return cutOff && i.backoff.silent || !now.Before(i.backoff.lastResort)
}

// schedule sets the timer for the next decision that is due without an event.
func (d *Daemon) schedule(now, again time.Time) {
	next := now.Add(time.Hour)
	for _, t := range []time.Time{again, d.requestedUntil} {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	for _, i := range d.interfaces {
		if at := now.Add(linkPoll); i.awaitsLink() && at.Before(next) {
			next = at
		}
		for _, at := range []time.Time{i.backoff.lastResort, i.backoff.until} {
			if at.After(now) && at.Before(next) {
				next = at
			}
		}
	}
	d.wake.Reset(next.Sub(now))
}

// begin starts a move. From now on the device also receives on the target, if the old interface is
// still usable and the datapath can receive on both.
func (d *Daemon) begin(target *iface, why string, waiting chan<- result) {
	ctx, cancel := context.WithTimeout(d.ctx, d.cfg.AttachTimeout)
	a := &attempt{target: target, why: why, started: time.Now(), cancel: cancel}
	if waiting != nil {
		a.waiting = append(a.waiting, waiting)
	}
	if d.active != nil && d.active != target {
		a.from = d.active
	}
	d.attempt = a
	d.log.Info("joining a network", "interface", target.Name, "why", why)
	if a.from != nil && a.from.usable() {
		if err := d.use(a.from, target); err != nil {
			d.log.Warn("the datapath does not listen to the new interface yet", "interface", target.Name, "error", err)
		} else {
			a.both = true
		}
	}
	index, mac, known := target.link.Index, target.mac(), d.leaseholder.lease
	d.wg.Go(func() {
		defer cancel()
		socket, err := d.sys.dhcp(index)
		var l lease.Lease
		if err == nil {
			defer socket.Close() // after the result is known: closing takes the kernel milliseconds
			l, err = d.leaseholder.join(ctx, lease.Port{Conn: socket, MAC: mac}, known)
		}
		took := time.Since(a.started)
		d.inbox.post(d.ctx, func() { d.finish(a, l, took, err) })
	})
}

// use makes the datapath send by the interface send. The datapath receives on send, on the interfaces
// in also, and on those where packets may still be in flight after the device has left them.
func (d *Daemon) use(send *iface, also ...*iface) error {
	receive, now := []string{send.Name}, time.Now()
	var again time.Time
	for _, i := range d.interfaces {
		left := i != send && i.usable() && now.Before(i.leftUntil)
		if left && (again.IsZero() || i.leftUntil.Before(again)) {
			again = i.leftUntil
		}
		if left || slices.Contains(also, i) {
			receive = append(receive, i.Name)
		}
	}
	ctx, cancel := d.datapathContext()
	defer cancel()
	if err := d.path.Use(ctx, send.Name, receive); err != nil {
		return err
	}
	if again.IsZero() {
		d.overlap.Stop()
	} else {
		d.overlap.Reset(again.Sub(now))
	}
	return nil
}

// endOverlap stops receiving on interfaces whose overlap has ended.
func (d *Daemon) endOverlap() {
	if d.active == nil {
		return
	}
	var also []*iface
	if d.attempt != nil && d.attempt.both {
		also = append(also, d.attempt.target)
	}
	if err := d.use(d.active, also...); err != nil {
		d.log.Warn("the datapath still listens to an interface that was left", "error", err)
	}
}

// markLeft records that the device has left the interface. Packets in flight there are still
// received for the overlap.
func (i *iface) markLeft(overlap time.Duration) { i.leftUntil = time.Now().Add(overlap) }

// finish ends a move, successful or not.
func (d *Daemon) finish(a *attempt, l lease.Lease, took time.Duration, err error) {
	if d.attempt != a {
		return // the move was abandoned
	}
	d.attempt = nil
	m := Move{At: a.started, To: a.target.Name, Why: a.why, Lease: took}
	if a.from != nil {
		m.From, m.MakeBeforeBreak = a.from.Name, a.from.usable() && a.from.joined && !a.from.sample.Silent
	}
	if err == nil {
		err = d.checkAddress(a, l)
	}
	if err == nil {
		m.Switch, err = d.switchTo(a)
	}
	if err != nil {
		d.attemptFailed(a, m, err)
		return
	}
	if a.from != nil && !m.MakeBeforeBreak {
		d.retransmit(a.target)
	}
	a.target.joined, a.target.failures = true, 0
	a.target.sample.Silent, a.target.sample.Since = false, time.Time{} // the network has answered on the target
	if d.active != a.target {
		d.active, d.since = a.target, time.Now()
	}
	if a.from != nil && a.from.sample.Silent {
		a.from.startSilentBackoff()
	}
	d.leaseholder.accept(l)
	for _, i := range d.interfaces {
		d.updateUse(i)
	}
	d.leaseholder.startRenewal(d.active)
	m.Address = l.Address.Addr().String()
	d.count.Moves++
	d.record(a, m, nil)
	d.leaseholder.save()
	d.log.Info("moved", "interface", m.To, "from", m.From, "address", l.Address, "lease", m.Lease, "switch", m.Switch, "why", m.Why)
	if a.target.sample.Gateway != (openflow.MAC{}) {
		d.leaseholder.setNeighbour(a.target.sample.Gateway)
	}
	d.decide()
}

// checkAddress returns an error if the network grants another address than the one that the device's
// connections use. It returns nil if the device has no other usable network, or if a user or the
// network has asked for this move.
func (d *Daemon) checkAddress(a *attempt, l lease.Lease) error {
	if a.from == nil || !a.from.usable() || !a.from.joined || !d.leaseholder.lease.Valid(time.Now()) || d.requested == a.target.Name || len(a.waiting) > 0 {
		return nil
	}
	if l.Address.Addr() == d.leaseholder.lease.Address.Addr() {
		return nil
	}
	return fmt.Errorf("%w: %v, not %v", errOtherAddress, l.Address.Addr(), d.leaseholder.lease.Address.Addr())
}

// switchTo switches the datapath to the target, and returns how long that took.
func (d *Daemon) switchTo(a *attempt) (time.Duration, error) {
	var also []*iface
	if a.both {
		a.from.markLeft(d.cfg.Overlap)
		also = append(also, a.from)
	}
	began := time.Now()
	if err := d.use(a.target, also...); err != nil {
		return 0, fmt.Errorf("the datapath: %w", err)
	}
	return time.Since(began), nil
}

// attemptFailed backs off from the target and decides again.
func (d *Daemon) attemptFailed(a *attempt, m Move, err error) {
	m.Error = err.Error()
	d.count.Failed++
	d.record(a, m, err)
	d.log.Warn("the network could not be joined", "interface", m.To, "error", err, "after", m.Lease)
	if a.both {
		if err := d.use(a.from); err != nil {
			d.log.Warn("the datapath still listens to an interface that failed", "interface", a.target.Name, "error", err)
		}
	}
	a.target.startBackoff(err)
	d.decide()
}

// abandon ends a move that is no longer useful.
func (d *Daemon) abandon(why error) {
	a := d.attempt
	d.attempt = nil
	a.cancel()
	if a.both && d.active == a.from {
		a.target.markLeft(d.cfg.Overlap) // the network may send to the target already
		if err := d.use(a.from); err != nil {
			d.log.Warn("the datapath still listens to two interfaces", "error", err)
		}
	}
	m := Move{At: a.started, To: a.target.Name, Why: a.why, Lease: time.Since(a.started), Error: why.Error()}
	if a.from != nil {
		m.From = a.from.Name
	}
	d.record(a, m, why)
}

// record stores a move and notifies those who wait for it.
func (d *Daemon) record(a *attempt, m Move, err error) {
	d.moves = append(d.moves, m)
	if n := len(d.moves) - historySize; n > 0 {
		d.moves = append(d.moves[:0], d.moves[n:]...)
	}
	for _, w := range a.waiting {
		w <- result{m, err}
	}
}

// startBackoff starts a back-off from an interface whose network could not be joined.
func (i *iface) startBackoff(why error) {
	now := time.Now()
	i.backoff = backoff{
		why: why.Error(), since: now, until: now.Add(min(backoffMin<<min(i.failures, 10), backoffMax)),
		lastResort: now.Add(backoffMin), silent: errors.Is(why, lease.ErrSilence),
	}
	i.failures++
}
