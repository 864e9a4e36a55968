package reserve

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// Link is one direction of a link, by the port it leaves from.
type Link = topology.PortRef

// Key names a promise: who made it, and for what.
type Key struct {
	Owner string `json:"owner" doc:"Part of the service that made the promise"`
	ID    string `json:"id" doc:"What it was made for"`
}

// Share is what is promised on one link, in bits per second.
type Share struct {
	Link Link
	Rate uint64
	// Kept is what the link's queues keep for traffic without a promise, as probes of the
	// link: it must be left beside all that is promised.
	Kept uint64
	// Answers is what the link carries of the answers to the traffic that counters of
	// the promise show. Nothing needs to be promised to them.
	Answers uint64
	// Counter counts the traffic of the promise on the link.
	Counter Counter
}

// Promise is capacity promised on links, all of it or nothing.
type Promise struct {
	Key
	Shares []Share
	// Yields is for traffic to which nothing is promised and which is held to what
	// promises leave, as by meters: its part of a link's use, as these count it, is free for
	// promises.
	// The rates of its shares are zero.
	Yields bool
	// Waits is for traffic that yields and is to be promised something when there is room.
	Waits bool
	// Holds keeps what the key is promised on a link already: whatever else the link carries,
	// as much can be promised again as fits beside other promises.
	Holds bool
	// Enforced says that queues hold the promise whatever else the links carry, so
	// that only other promises stand against it, not what is measured.
	Enforced bool
	// Over are other promises, to traffic that queues will then carry for this one: they do
	// not stand against it. Their owners give them up once it does. For what is Enforced.
	Over []Key
}

// Use is what is known of a link, in bits per second.
type Use struct {
	Capacity, Used uint64
	// Unknown is true if Used has not been measured, or not for long.
	Unknown bool
	// Until is when Used says nothing any more; zero for never.
	Until time.Time
}

// Shortage is the error of a promise that cannot be made: the first of its links
// that lacks capacity.
type Shortage struct {
	Link                       Link
	Asked, Available, Capacity uint64
	// Unknown is true if it is not known what the link carries.
	Unknown bool
}

// Error tells the link and the numbers.
func (s *Shortage) Error() string {
	if s.Capacity == 0 {
		return fmt.Sprintf("link from %v: its capacity is not known: set network.switches.<id>.capacity for the port", s.Link)
	}
	if s.Unknown {
		return fmt.Sprintf("link from %v: what it carries is not measured yet", s.Link)
	}
	return fmt.Sprintf("link from %v: %d bit/s asked, %d of %d available", s.Link, s.Asked, s.Available, s.Capacity)
}

// Book holds promises. Its methods may be called concurrently.
type Book struct {
	use    func(Link) Use
	guards func(Link) uint32
	now    func() time.Time
	// readAtOnce is how many switches Measure reads at once.
	readAtOnce int

	// changed are called when a rate has been promised or given up.
	changed []func()

	mu       sync.Mutex
	promises map[Key]*entry
	links    map[Link]*account
}

// New makes an empty book. use tells what is measured on a link now; a link of
// capacity zero is one of which nothing can be promised. It is called with the
// book locked.
func New(use func(Link) Use) *Book {
	return &Book{use: use, guards: func(Link) uint32 { return 0 }, now: time.Now, readAtOnce: readAtOnce, promises: map[Key]*entry{}, links: map[Link]*account{}}
}

// OnChange has f called whenever a rate has been promised or given up. It must not block, and is
// told of before the book is used.
func (b *Book) OnChange(f func()) { b.changed = append(b.changed, f) }

// tell tells of a change, if it is of rates. The lock is not held.
func (b *Book) tell(rates bool) {
	if rates {
		for _, f := range b.changed {
			f()
		}
	}
}

// SetClock has the book tell the time by a function, for simulations. It is called before the
// book is used.
func (b *Book) SetClock(now func() time.Time) { b.now = now }

// Use is what is measured on a link now.
func (b *Book) Use(l Link) Use { return b.use(l) }

// Admit makes a promise if every link has what is asked, and otherwise nothing: the
// error is a *Shortage. A promise of the same key is replaced, and what it holds
// counts as free for the new one.
func (b *Book) Admit(p Promise) error {
	b.mu.Lock()
	short := b.short(p)
	if short != nil {
		b.mu.Unlock()
		return short
	}
	rates := b.put(p)
	b.mu.Unlock()
	b.tell(rates)
	return nil
}

// Short is what Admit would refuse a promise for now; nil if it would make it.
func (b *Book) Short(p Promise) *Shortage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.short(p)
}

// short is Short. The lock is held.
func (b *Book) short(p Promise) *Shortage {
	asked := sum(p.Shares)
	for _, s := range p.Shares {
		u := b.use(s.Link)
		free, known := b.available(s.Link, u, p.Key, p.Holds), true
		if p.Enforced {
			promised := b.account(s.Link).promised(s.Link, append(slices.Clone(p.Over), p.Key)...)
			free = u.Capacity - min(promised, u.Capacity)
		} else {
			known = b.measured(s.Link, u).valid
		}
		free -= min(free, s.Kept)
		if u.Capacity == 0 || free < asked[s.Link] {
			return &Shortage{Link: s.Link, Asked: asked[s.Link], Available: free, Capacity: u.Capacity, Unknown: !known}
		}
	}
	return nil
}

// Restore makes a promise that was made before, whatever the links have now: after
// a restart, when the flow has been running all the time.
func (b *Book) Restore(p Promise) {
	b.mu.Lock()
	rates := b.put(p)
	b.mu.Unlock()
	b.tell(rates)
}

// put enters a promise. What is known of the flow's traffic stays known. It says whether a rate is
// promised or given up. The lock is held.
func (b *Book) put(p Promise) (rates bool) {
	e := &entry{promise: p, rates: sum(p.Shares), answers: map[Link]uint64{}, before: make(map[Link]uint64, len(p.Shares))}
	e.promise.Shares = slices.Clone(p.Shares)
	for _, s := range p.Shares {
		if s.Answers > 0 {
			e.answers[s.Link] += s.Answers
		}
	}
	old := b.promises[p.Key]
	e.counted(old, b.now())
	for l := range e.rates {
		u := b.use(l)
		e.before[l] = u.Used
		if b.links[l] == nil { // it is of the time before the promise's own traffic
			b.links[l] = newAccount()
			b.links[l].measured = window{used: u.Used, others: u.Used, until: u.Until, valid: !u.Unknown}
		}
	}
	if old != nil {
		e.seen, rates = old.seen, old.tells()
		b.replace(old, e)
	}
	b.promises[p.Key] = e
	b.enter(e)
	return rates || e.tells()
}

// enter adds a promise to the accounts of its links. The lock is held.
func (b *Book) enter(e *entry) {
	for l := range e.rates {
		b.links[l].enter(l, e)
	}
}

// replace takes a promise out in whose place another comes: what has been measured on the links
// of both stays. The lock is held.
func (b *Book) replace(old, next *entry) {
	for l := range old.rates {
		if _, stays := next.rates[l]; b.links[l].leave(l, old) && !stays {
			delete(b.links, l)
		}
	}
}

// leave takes a promise out of the accounts of its links. The lock is held.
func (b *Book) leave(e *entry) {
	for l := range e.rates {
		if a := b.links[l]; a.leave(l, e) {
			delete(b.links, l)
		}
	}
}

// account is what stands in the book for a link, to be read. The lock is held.
func (b *Book) account(l Link) *account {
	if a := b.links[l]; a != nil {
		return a
	}
	return &account{}
}

// remove takes a promise out. The lock is held.
func (b *Book) remove(e *entry) {
	delete(b.promises, e.promise.Key)
	b.leave(e)
}

// Release gives a promise up; false if there is none.
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
	b.tell(e.tells())
	return true
}

// Observe notes how fast a promise's own traffic has gone over its links since the
// last reading of its counters, in bits per second.
func (b *Book) Observe(k Key, rate uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.promises[k]; e != nil {
		b.replace(e, e)
		e.seen.add(rate)
		b.enter(e)
	}
}

// Available returns what a link has left for the promise of a key, in bits per second: what it
// holds there itself counts as free. The zero key is for one that does not exist yet. It is
// never more than what the link had left in the latest window of time that was measured.
func (b *Book) Available(l Link, k Key) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.available(l, b.use(l), k, false)
}

// AvailableAgain is Available for a promise that may keep what it holds on the link: with holds
// it is not less than that.
func (b *Book) AvailableAgain(l Link, k Key, holds bool) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.available(l, b.use(l), k, holds)
}

// available computes what a link has left for the promise of a key: nothing, while it is not
// known what the link carries, or while it is full, so that more may be sent to it than it shows.
// With holds it is at least what the key is promised there already. The lock is held.
func (b *Book) available(l Link, u Use, k Key, holds bool) (free uint64) {
	a, m := b.account(l), b.measured(l, u)
	if m.valid && !isFull(u, m.used) {
		free = u.Capacity - min(m.somebodys(u)+a.promised(l, k), u.Capacity)
	}
	if e := a.entries[k]; holds && e != nil {
		free = max(free, min(e.rates[l], u.Capacity-min(a.promised(l, k), u.Capacity)))
	}
	return free
}

// Use that is nobody's promise is not held against one if it may be noise: of chatter,
// what the controller and hosts send unasked (probes, ARP, neighbour discovery), in bit/s;
// and of readings that are not taken at the same moment, a part of the traffic that the
// promises show. Both together are at most that part of the capacity, which is thus the
// most that all promises of a link may be short of together, however many they are.
const (
	chatter = 100_000
	skew    = 100
)

// noise is how much of a link's use may be noise, if own of it is known to be of promises.
func noise(u Use, own uint64) uint64 { return min(u.Capacity/skew, chatter+own/skew) }

// Room estimates what a link has left for traffic without a promise: its capacity, less what is
// promised, and less its traffic that is probably neither promised nor yielding. It compares
// readings of different times, so nothing may be promised by it.
func (b *Book) Room(l Link) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	u, a := b.use(l), b.account(l)
	others := u.Used - min(a.sums.counted, u.Used)
	own := u.Used - others
	unseen, grown := uint64(0), uint64(0)
	for _, n := range a.young {
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

// Left is what a link has for the promise of a key at the best: as Available, but all
// that may be traffic of promises is taken for it, except what others are known to carry
// beyond theirs. A promise of more is endangered.
func (b *Book) Left(l Link, k Key) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	u, a := b.use(l), b.account(l)
	seen, excess := a.sums.seen, a.sums.excess
	if e := a.entries[k]; e != nil {
		excess -= e.excess(l)
	}
	for _, n := range a.young {
		seen += n.more
	}
	others := u.Used - min(seen, u.Used)
	return u.Capacity - min(others+excess+a.promised(l, k), u.Capacity)
}

// Overbooked is the first link on which the promise of a key does not fit any more,
// because the link has less capacity than when it was made; nil if there is none. A
// promise that queues enforce does not fit beside others of that kind; any other does
// not fit beside all others.
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

// Promises lists the promises, by owner and identifier.
func (b *Book) Promises() []Promise {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Promise, 0, len(b.promises))
	for _, k := range slices.SortedFunc(maps.Keys(b.promises), Key.compare) {
		out = append(out, b.promises[k].promise)
	}
	return out
}

// Open is the sum of what is promised on a link and enforced by no queue.
func (b *Book) Open(l Link) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.account(l).sums.open
}

// Promised is the sum of what is promised on a link.
func (b *Book) Promised(l Link) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.account(l).sums.promised
}
