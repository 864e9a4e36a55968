package reserve

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// Counter names what counts the traffic of a promise behind all that holds it back. The zero
// Counter is that of traffic which nothing counts: it stands against promises like that of others.
type Counter struct {
	Switch openflow.DatapathID
	// Meter is the number of a meter. What it has not dropped goes by the links of all shares
	// that name it, in their order.
	Meter uint32
	// Queue is the number of a queue at Port.
	Queue, Port uint32
}

// Counters reads the counters of switches; a *network.Network.
type Counters interface {
	PortCounters(context.Context, openflow.DatapathID) ([]stats.Sample, error)
	MeterStats(context.Context, openflow.DatapathID) ([]openflow.MeterStats, error)
	QueueStats(context.Context, openflow.DatapathID) ([]openflow.QueueStats, error)
}

const (
	// fullAt is the part of a link's capacity, in percent, from which on it is full: what is
	// sent to it then may be more than it shows. Frames need 1.6 % more than is counted of
	// them. What is held back is held below (package guard).
	fullAt = 98
	// validFor is how many of its windows a measurement is used for.
	validFor = 3
	// readAtOnce is how many switches are read at once.
	readAtOnce = 64
)

// window is what a link has carried in one window of time. The zero value is not valid.
type window struct {
	used uint64 // bit/s
	// others is the most that may be of traffic which nobody has been promised anything for and
	// which does not yield, in bit/s.
	others uint64
	until  time.Time // zero: for ever
	valid  bool
}

// fresh reports whether the measurement still says something.
func (m *window) fresh(now time.Time) bool {
	return m.valid && (m.until.IsZero() || now.Before(m.until))
}

// count is one reading of a counter.
type count struct {
	bytes uint64
	// created is not after the time at which the counter began with zero.
	created time.Time
}

// round is one reading of all counters: first those of ports, then those of traffic, and those
// of ports once more. Traffic between the second steps of two rounds is thus part of what ports
// show between the first step of one and the third of the other.
type round struct {
	before, after map[Link]stats.Sample
	// begun is when the counters of traffic were asked for.
	begun  time.Time
	counts map[Counter]count
	failed map[openflow.DatapathID]bool // counters of traffic could not be read
}

// opened is the beginning of a link's window.
type opened struct {
	port   stats.Sample
	begun  time.Time
	counts map[Counter]count
}

// Measure reads the counters of links on which something is promised or waits, and of the
// traffic concerned. Availability is computed from what they show in one window of time, so it
// has to be called at regular intervals. Links whose counters cannot be read keep the beginning
// of their window.
func (b *Book) Measure(ctx context.Context, from Counters) {
	ports, meters, queues := b.toRead()
	if len(ports) == 0 {
		return
	}
	r := round{before: b.readPorts(ctx, from, ports), begun: b.now()}
	r.counts, r.failed = b.readTraffic(ctx, from, meters, queues)
	r.after = b.readPorts(ctx, from, ports)
	b.mu.Lock()
	defer b.mu.Unlock()
	full := map[Link]bool{}
	for l, a := range b.links {
		full[l] = a.fullIn(l, b.use(l), &r)
	}
	for l, a := range b.links {
		b.close(l, a, &r, full)
	}
}

// toRead returns the switches of which ports, meters and queues have to be read.
func (b *Book) toRead() (ports, meters, queues map[openflow.DatapathID]bool) {
	ports, meters, queues = map[openflow.DatapathID]bool{}, map[openflow.DatapathID]bool{}, map[openflow.DatapathID]bool{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for l, a := range b.links {
		if b.guards(l) != 0 {
			ports[l.Switch], meters[l.Switch] = true, true
		}
		for _, e := range a.entries {
			switch c := e.counters[l]; {
			case c.Meter != 0:
				ports[l.Switch], meters[c.Switch] = true, true
			case c.Queue != 0:
				ports[l.Switch], queues[c.Switch] = true, true
			}
		}
	}
	return ports, meters, queues
}

// each calls f for every switch, for so many at once, and returns what the calls have returned
// for those without an error.
func each[T any](atOnce int, of map[openflow.DatapathID]bool, f func(openflow.DatapathID) (T, error)) map[openflow.DatapathID]T {
	type answer struct {
		of    openflow.DatapathID
		value T
		err   error
	}
	all := make([]answer, 0, len(of))
	for _, d := range slices.Sorted(maps.Keys(of)) {
		all = append(all, answer{of: d})
	}
	indices := make([]int, len(all))
	for i := range indices {
		indices[i] = i
	}
	tasks.Each(indices, atOnce, func(i int) { all[i].value, all[i].err = f(all[i].of) })
	out := make(map[openflow.DatapathID]T, len(all))
	for _, x := range all {
		if x.err == nil {
			out[x.of] = x.value
		}
	}
	return out
}

func (b *Book) readPorts(ctx context.Context, from Counters, of map[openflow.DatapathID]bool) map[Link]stats.Sample {
	out := map[Link]stats.Sample{}
	for _, samples := range each(b.readAtOnce, of, func(d openflow.DatapathID) ([]stats.Sample, error) { return from.PortCounters(ctx, d) }) {
		for _, x := range samples {
			out[x.Port] = x
		}
	}
	return out
}

// readTraffic reads meters and queues. A meter counts what it passes: what it drops goes nowhere.
func (b *Book) readTraffic(ctx context.Context, from Counters, meters, queues map[openflow.DatapathID]bool) (counts map[Counter]count, failed map[openflow.DatapathID]bool) {
	counts, failed = map[Counter]count{}, map[openflow.DatapathID]bool{}
	asked := b.now()
	byMeter := each(b.readAtOnce, meters, func(d openflow.DatapathID) ([]openflow.MeterStats, error) { return from.MeterStats(ctx, d) })
	for d := range meters {
		all, ok := byMeter[d]
		failed[d] = failed[d] || !ok
		for _, m := range all {
			passed := m.Bytes
			for _, band := range m.Bands {
				passed -= min(band.Bytes, passed)
			}
			counts[Counter{Switch: d, Meter: m.Meter}] = count{passed, asked.Add(-m.Duration.Duration())}
		}
	}
	asked = b.now()
	byQueue := each(b.readAtOnce, queues, func(d openflow.DatapathID) ([]openflow.QueueStats, error) { return from.QueueStats(ctx, d) })
	for d := range queues {
		all, ok := byQueue[d]
		failed[d] = failed[d] || !ok
		for _, q := range all {
			counts[Counter{Switch: d, Queue: q.Queue, Port: q.Port}] = count{q.TxBytes, asked.Add(-q.Duration.Duration())}
		}
	}
	return counts, failed
}

// sent returns what a port has sent in the window that ends with a round, and how long that has
// been at least and at most; false if there is none.
func (a *account) sent(l Link, r *round) (bytes uint64, least, most time.Duration, ok bool) {
	end, read := r.after[l]
	if a.opened == nil || !read || end.TxBytes == stats.Unsupported || end.TxBytes < a.opened.port.TxBytes {
		return 0, 0, 0, false
	}
	begin := &a.opened.port
	least, most = end.Sent.Sub(begin.Received), end.Received.Sub(begin.Sent)
	return end.TxBytes - begin.TxBytes, least, most, least > 0
}

// fullIn reports whether a link may have been sent more than it shows in the window that ends
// with a round. Of one that has not been read nobody knows.
func (a *account) fullIn(l Link, u Use, r *round) bool {
	bytes, least, _, ok := a.sent(l, r)
	return !ok || isFull(u, bits(bytes, least))
}

func isFull(u Use, used uint64) bool { return used >= u.Capacity/100*fullAt }

func bits(bytes uint64, in time.Duration) uint64 { return uint64(float64(bytes) * 8 / in.Seconds()) }

// close ends a link's window, and begins the next. full are the links that may have dropped
// what they were sent. The lock is held.
func (b *Book) close(l Link, a *account, r *round, full map[Link]bool) {
	begin, read := r.before[l]
	if !read || begin.TxBytes == stats.Unsupported {
		return
	}
	now := &opened{begin, r.begun, map[Counter]count{}}
	guard := Counter{Switch: l.Switch, Meter: b.guards(l)}
	if guard.Meter != 0 {
		if r.failed[guard.Switch] {
			return
		}
		now.note(guard, r)
	}
	for _, e := range a.entries {
		if c := e.counters[l]; c != (Counter{}) {
			if r.failed[c.Switch] {
				return
			}
			now.note(c, r)
		}
	}
	bytes, least, most, ok := a.sent(l, r)
	if ok {
		own := uint64(0)
		if guard.Meter != 0 {
			own = a.opened.grown(guard, time.Time{}, time.Time{}, true, r)
		}
		for _, e := range a.entries {
			own += e.carried(l, a.opened, r, most, full)
		}
		used := bits(bytes, least)
		a.measured = window{used: used, others: bits(bytes-min(own, bytes), least), until: r.after[l].Received.Add(validFor * most), valid: true}
	}
	a.opened = now
}

// note takes the reading of a counter into the beginning of a window.
func (o *opened) note(c Counter, r *round) {
	if x, ok := r.counts[c]; ok {
		o.counts[c] = x
	}
}

// grown returns what a counter has counted at least since the window began. It counts for a
// promise that was entered at a time, and is settled since another if its rules are written. A
// counter that is changed may begin anew.
func (o *opened) grown(c Counter, entered, since time.Time, settled bool, r *round) uint64 {
	now, read := r.counts[c]
	if !read {
		return 0
	}
	before, known := o.counts[c]
	switch {
	case known && settled && !since.After(o.begun):
		if now.bytes < before.bytes {
			return now.bytes
		}
		return now.bytes - before.bytes
	case now.created.After(o.port.Received) && now.created.After(entered):
		return now.bytes // all of it is of this window
	}
	return 0
}

// carried returns what a promise has carried on a link at least, in bytes, in the window that
// ends with a round and is as long as most.
func (e *entry) carried(l Link, o *opened, r *round, most time.Duration, full map[Link]bool) uint64 {
	c := e.counters[l]
	if c == (Counter{}) {
		return 0
	}
	if c.Meter != 0 {
		for _, s := range e.promise.Shares { // what an earlier link has dropped did not come here
			if s.Link == l {
				break
			}
			if s.Counter == c && (s.Answers > 0) == (e.answers[l] > 0) && full[s.Link] {
				return 0
			}
		}
	}
	since, settled := e.since[l]
	bytes := o.grown(c, e.entered[l], since, settled, r)
	if limit := max(e.rates[l], e.answers[l]); limit > 0 {
		bytes = min(bytes, uint64(float64(limit)*most.Seconds()/8))
	}
	return bytes
}

// Settled notes that the rules for a promise's traffic are in the switches: what its counters
// show from now on goes by its links.
func (b *Book) Settled(k Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.promises[k]; e != nil {
		for l := range e.counters {
			if _, settled := e.since[l]; !settled {
				e.since[l] = b.now()
			}
		}
	}
}

// counted fills in what is known of the counters of a promise that takes the place of another:
// the same counter on the same link goes on.
func (e *entry) counted(old *entry, now time.Time) {
	e.counters, e.entered, e.since = map[Link]Counter{}, map[Link]time.Time{}, map[Link]time.Time{}
	for _, s := range e.promise.Shares {
		if s.Counter == (Counter{}) {
			continue
		}
		e.counters[s.Link], e.entered[s.Link] = s.Counter, now
		switch {
		case old != nil && old.counters[s.Link] == s.Counter:
			e.entered[s.Link] = old.entered[s.Link]
			if since, settled := old.since[s.Link]; settled {
				e.since[s.Link] = since
			}
		case s.Counter.Queue != 0: // it counts at the very port
			e.since[s.Link] = now
		}
	}
}

// Guarded has the book ask which meter all traffic passes that yields on a link; zero for none.
// It is called before the book is used.
func (b *Book) Guarded(meter func(Link) uint32) { b.guards = meter }

// Others returns the most of a link's traffic that may be neither promised nor yielding, in
// bit/s, and false if that is not known. It is of one window of time: what is compared was read
// at the same time, or includes it.
func (b *Book) Others(l Link) (uint64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.measured(l, b.use(l))
	return m.somebodys(b.use(l)), m.valid
}

// somebodys returns the traffic of others, or zero if that may be noise.
func (m *window) somebodys(u Use) uint64 {
	if m.others < noise(u, m.used-m.others) {
		return 0
	}
	return m.others
}

// Full reports whether a link is full, with traffic among it that nobody has been promised.
func (b *Book) Full(l Link) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.use(l)
	m := b.measured(l, u)
	return m.valid && u.Capacity > 0 && isFull(u, m.used) && m.somebodys(u) > 0
}

// measured returns what is known of the traffic on a link. The lock is held.
func (b *Book) measured(l Link, u Use) window {
	if a := b.links[l]; a != nil && a.measured.fresh(b.now()) {
		return a.measured
	}
	return window{used: u.Used, others: u.Used, until: u.Until, valid: !u.Unknown}
}

// Waiting reports whether traffic on a link waits for a promise.
func (b *Book) Waiting(l Link) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(slices.Collect(maps.Values(b.account(l).entries)), func(e *entry) bool { return e.promise.Waits })
}
