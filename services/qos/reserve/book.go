package reserve

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// Link is one direction of a link, identified by the port from which it leaves.
type Link = topology.PortRef

// Key identifies a promise by its owner and by what the promise was made for.
type Key struct {
	Owner string `json:"owner" doc:"Part of the service that made the promise"`
	ID    string `json:"id" doc:"What it was made for"`
}

// Share is the part of a promise on one link, in bits per second.
type Share struct {
	Link Link
	Rate uint64
	// Reserved is the rate that the link's queues reserve for traffic without a promise, such as
	// probes of the link. This rate must be left besides all promises.
	Reserved uint64
	// Answers is the rate of the answers, on this link, to the traffic that the promise's counters
	// count. Answers need no promise.
	Answers uint64
	// Counter counts the traffic of the promise on the link.
	Counter Counter
}

// Promise is capacity that is reserved on links, either on all of them or on none.
type Promise struct {
	Key
	Shares []Share
	// Yields marks an entry for traffic to which nothing is promised. Meters, for example, limit
	// such traffic to the capacity that promises leave. The part of a link's use that the meters
	// count as this traffic is available for promises. The rates of the entry's shares are zero.
	Yields bool
	// Waits marks yielding traffic that should get a promise when capacity is available.
	Waits bool
	// Holds allows a new promise to use again the capacity that its key has on a link already. Up
	// to the earlier rate, the new promise then only has to fit beside other promises, whatever
	// else the link carries.
	Holds bool
	// Enforced means that queues enforce the promise whatever else the links carry. Only other
	// promises then compete with it, not measured traffic.
	Enforced bool
	// Replaces lists other promises, whose traffic will be carried by this promise's queues. They
	// do not compete with this promise, and their owners release them once this one is made.
	// Replaces applies only to enforced promises.
	Replaces []Key
}

// Use holds what is known about a link, in bits per second.
type Use struct {
	Capacity, Used uint64
	// Unknown is true if Used has not been measured, or not recently.
	Unknown bool
	// Until is when Used becomes invalid; zero for never.
	Until time.Time
}

// Shortage is the error of a promise that cannot be made. It names the first link that
// lacks capacity.
type Shortage struct {
	Link                       Link
	Asked, Available, Capacity uint64
	// Unknown is true if the link's traffic is not known.
	Unknown bool
}

// Error returns a message with the link and the rates.
func (s *Shortage) Error() string {
	if s.Capacity == 0 {
		return fmt.Sprintf("link from %v: its capacity is not known: set network.switches.<id>.capacity for the port", s.Link)
	}
	if s.Unknown {
		return fmt.Sprintf("link from %v: what it carries is not measured yet", s.Link)
	}
	return fmt.Sprintf("link from %v: %d bit/s asked, %d of %d available", s.Link, s.Asked, s.Available, s.Capacity)
}

// Book is the book of promises on links. Its methods may be called concurrently.
type Book struct {
	use        func(Link) Use
	guardMeter func(Link) uint32
	now        func() time.Time
	// readAtOnce bounds the switches that Measure reads at once.
	readAtOnce int

	// changed holds the functions to call when a rate has been promised or released.
	changed []func()

	mu       sync.Mutex
	promises map[Key]*entry
	links    map[Link]*account
}

// New returns an empty book. use returns the measured use of a link. Nothing can be promised on a
// link of capacity zero. The book calls use while it is locked.
func New(use func(Link) Use) *Book {
	return &Book{use: use, guardMeter: func(Link) uint32 { return 0 }, now: time.Now, readAtOnce: readAtOnce, promises: map[Key]*entry{}, links: map[Link]*account{}}
}

// OnRateChange registers f to be called whenever a rate has been promised or released. f
// must not block. OnRateChange must be called before the book is used.
func (b *Book) OnRateChange(f func()) { b.changed = append(b.changed, f) }

// notify calls the registered functions if rates is set. The lock is not held.
func (b *Book) notify(rates bool) {
	if rates {
		for _, f := range b.changed {
			f()
		}
	}
}

// SetClock sets the function that returns the time, for simulations. It must be called
// before the book is used.
func (b *Book) SetClock(now func() time.Time) { b.now = now }

// Use returns the measured use of a link.
func (b *Book) Use(l Link) Use { return b.use(l) }

// Admit makes a promise if every link has the requested capacity available. Otherwise it makes none
// and returns a *Shortage. The promise replaces an earlier one of the same key, whose capacity
// counts as available for the new one.
func (b *Book) Admit(p Promise) error {
	b.mu.Lock()
	short := b.short(p)
	if short != nil {
		b.mu.Unlock()
		return short
	}
	rates := b.insert(p)
	b.mu.Unlock()
	b.notify(rates)
	return nil
}

// Short returns the shortage with which Admit would refuse a promise now; nil if it would
// admit the promise.
func (b *Book) Short(p Promise) *Shortage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.short(p)
}

// short implements Short. The lock is held.
func (b *Book) short(p Promise) *Shortage {
	asked := sum(p.Shares)
	for _, s := range p.Shares {
		u := b.use(s.Link)
		free, known := b.available(s.Link, u, p.Key, p.Holds), true
		if p.Enforced {
			promised := b.account(s.Link).promised(s.Link, append(slices.Clone(p.Replaces), p.Key)...)
			free = u.Capacity - min(promised, u.Capacity)
		} else {
			known = b.measured(s.Link, u).valid
		}
		free -= min(free, s.Reserved)
		if u.Capacity == 0 || free < asked[s.Link] {
			return &Shortage{Link: s.Link, Asked: asked[s.Link], Available: free, Capacity: u.Capacity, Unknown: !known}
		}
	}
	return nil
}

// Restore makes a promise that was made before, even if the links lack capacity, because its flow
// continued while the controller restarted.
func (b *Book) Restore(p Promise) {
	b.mu.Lock()
	rates := b.insert(p)
	b.mu.Unlock()
	b.notify(rates)
}

// insert adds a promise. It keeps the measurements of the traffic of an earlier promise of the same
// key. It reports whether others have to be notified of the change. The lock is held.
func (b *Book) insert(p Promise) (rates bool) {
	e := &entry{promise: p, rates: sum(p.Shares), answers: map[Link]uint64{}, before: make(map[Link]uint64, len(p.Shares))}
	e.promise.Shares = slices.Clone(p.Shares)
	for _, s := range p.Shares {
		if s.Answers > 0 {
			e.answers[s.Link] += s.Answers
		}
	}
	old := b.promises[p.Key]
	e.inheritCounters(old, b.now())
	for l := range e.rates {
		u := b.use(l)
		e.before[l] = u.Used
		if b.links[l] == nil { // measured before the promise's own traffic starts
			b.links[l] = newAccount()
			b.links[l].measured = window{used: u.Used, others: u.Used, until: u.Until, valid: !u.Unknown}
		}
	}
	if old != nil {
		e.history, rates = old.history, old.affectsOthers()
		b.replace(old, e)
	}
	b.promises[p.Key] = e
	b.enter(e)
	return rates || e.affectsOthers()
}

// enter adds a promise to the accounts of its links. The lock is held.
func (b *Book) enter(e *entry) {
	for l := range e.rates {
		b.links[l].enter(l, e)
	}
}

// replace removes the promise old from the accounts of its links, so that next can be entered. It
// keeps the measurements of links that both have. The lock is held.
func (b *Book) replace(old, next *entry) {
	for l := range old.rates {
		if _, stays := next.rates[l]; b.links[l].leave(l, old) && !stays {
			delete(b.links, l)
		}
	}
}

// leave removes a promise from the accounts of its links. The lock is held.
func (b *Book) leave(e *entry) {
	for l := range e.rates {
		if a := b.links[l]; a.leave(l, e) {
			delete(b.links, l)
		}
	}
}

// account returns the account of a link, for reading. The lock is held.
func (b *Book) account(l Link) *account {
	if a := b.links[l]; a != nil {
		return a
	}
	return &account{}
}

// remove removes a promise. The lock is held.
func (b *Book) remove(e *entry) {
	delete(b.promises, e.promise.Key)
	b.leave(e)
}

// Release releases a promise, and reports whether there was one.
func (b *Book) Release(k Key) bool {
	b.mu.Lock()
	e := b.promises[k]
	if e != nil {
		b.remove(e)
	}
	b.mu.Unlock()
	if e == nil {
		return false
	}
	b.notify(e.affectsOthers())
	return true
}

// Observe records the rate of a promise's own traffic since the last reading of its
// counters, in bits per second.
func (b *Book) Observe(k Key, rate uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.promises[k]; e != nil {
		b.replace(e, e)
		e.history.add(rate)
		b.enter(e)
	}
}

// Available returns the capacity that a link has available for the promise of a key, in bits per
// second. The capacity that the key has been promised there already counts as available. The zero
// key stands for a promise that does not exist yet. The result never exceeds what was available in
// the latest measured window.
func (b *Book) Available(l Link, k Key) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.available(l, b.use(l), k, false)
}

// AvailableAgain is like Available. If holds is set, the result is at least what the key has been
// promised on the link already, as far as that fits beside other promises.
func (b *Book) AvailableAgain(l Link, k Key, holds bool) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.available(l, b.use(l), k, holds)
}

// available returns the capacity that a link has available for the promise of a key. The result is
// zero while the link's traffic is not known, and while the link is full, because more may then be
// sent to the link than its counters show. If holds is set, the result is at least what the key has
// been promised there already, as far as that fits beside other promises. The lock is held.
func (b *Book) available(l Link, u Use, k Key, holds bool) (free uint64) {
	a, m := b.account(l), b.measured(l, u)
	if m.valid && !isFull(u, m.used) {
		free = u.Capacity - min(m.othersRate(u)+a.promised(l, k), u.Capacity)
	}
	if e := a.entries[k]; holds && e != nil {
		free = max(free, min(e.rates[l], u.Capacity-min(a.promised(l, k), u.Capacity)))
	}
	return free
}

// Use that belongs to no promise is ignored if it may be noise. chatter is the rate, in bit/s, of
// packets that the controller and hosts send unasked (probes, ARP, neighbour discovery). 1/skew is
// the part of the promises' measured traffic by which readings may differ because they are not
// taken at the same moment. The noise is at most 1/skew of the capacity. All promises of a link
// together may therefore lack at most that, however many they are.
const (
	chatter = 100_000
	skew    = 100
)

// noise returns the part of a link's use that may be noise, if the part own of the use is known to
// belong to promises, in bit/s.
func noise(u Use, own uint64) uint64 { return min(u.Capacity/skew, chatter+own/skew) }

// EstimateFree estimates the capacity of a link that is free for traffic without a promise, in
// bit/s: the capacity, minus the promises, minus the traffic that is probably neither promised nor
// yielding. It compares readings of different times, so no promise may be based on it.
func (b *Book) EstimateFree(l Link) uint64 { return b.EstimateFreeOf(l, b.use(l)) }

// EstimateFreeOf is EstimateFree for a caller that has measured the use of the link more recently.
func (b *Book) EstimateFreeOf(l Link, u Use) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(l)
	others := u.Used - min(a.sums.counted, u.Used)
	own := u.Used - others
	unseen, grown := uint64(0), uint64(0)
	for _, n := range a.unmeasured {
		unseen += n.unseen
		grown = max(grown, u.Used-min(n.shown, u.Used))
	}
	others -= min(unseen, grown, others)
	others = max(others, a.sums.excess) // a full link shows less than is sent to it
	if others < noise(u, own) {
		others = 0
	}
	return u.Capacity - min(others+a.sums.promised, u.Capacity)
}

// MaxAvailable returns the most capacity that a link may have for the promise of a key, in bit/s.
// It is like Available, but attributes to promises all traffic that may be theirs, except the
// traffic that other promises are known to have beyond their rates. If a promise exceeds the
// result, the promise cannot be kept.
func (b *Book) MaxAvailable(l Link, k Key) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	u, a := b.use(l), b.account(l)
	seen, excess := a.sums.seen, a.sums.excess
	if e := a.entries[k]; e != nil {
		excess -= e.excess(l)
	}
	for _, n := range a.unmeasured {
		seen += n.more
	}
	others := u.Used - min(seen, u.Used)
	return u.Capacity - min(others+excess+a.promised(l, k), u.Capacity)
}

// Overbooked returns the first link on which the promise of a key no longer fits because the link's
// capacity has decreased; nil if there is none. An enforced promise competes only with other
// enforced promises. Any other promise competes with all others.
func (b *Book) Overbooked(k Key) *Shortage {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.promises[k]
	if e == nil {
		return nil
	}
	for _, l := range slices.SortedFunc(maps.Keys(e.rates), Link.Compare) {
		u, others := b.use(l), uint64(0)
		for other, o := range b.account(l).entries {
			if other != k && (o.promise.Enforced || !e.promise.Enforced) {
				others += o.rates[l]
			}
		}
		if free := u.Capacity - min(others, u.Capacity); u.Capacity > 0 && free < e.rates[l] {
			return &Shortage{Link: l, Asked: e.rates[l], Available: free, Capacity: u.Capacity}
		}
	}
	return nil
}

// Promises returns the promises, sorted by owner and identifier.
func (b *Book) Promises() []Promise {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Promise, 0, len(b.promises))
	for _, k := range slices.SortedFunc(maps.Keys(b.promises), Key.compare) {
		out = append(out, b.promises[k].promise)
	}
	return out
}

// Unenforced returns the sum of the promises on a link that no queue enforces, in bit/s.
func (b *Book) Unenforced(l Link) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.account(l).sums.open
}

// Promised returns the sum of the promises on a link, in bit/s.
func (b *Book) Promised(l Link) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.account(l).sums.promised
}
