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

// Counter identifies a counter of the traffic of a promise, behind everything that limits this
// traffic. The zero Counter means that nothing counts the traffic. The traffic then competes with
// promises like the traffic of others.
type Counter struct {
	Switch openflow.DatapathID
	// Meter is the number of a meter. The packets that it lets through pass the links of all shares
	// of the promise that have this counter, in the order of Promise.Shares.
	Meter uint32
	// Queue is the number of a queue at Port.
	Queue, Port uint32
}

// Counters reads the counters of switches, as a *network.Network does.
type Counters interface {
	PortCounters(context.Context, openflow.DatapathID) ([]stats.Sample, error)
	MeterStats(context.Context, openflow.DatapathID) ([]openflow.MeterStats, error)
	QueueStats(context.Context, openflow.DatapathID) ([]openflow.QueueStats, error)
}

const (
	// fullAt is the percentage of a link's capacity from which the link counts as full. It is less
	// than 100 because more may be sent to the link than its counters show: frames take 1.6 % more
	// of the wire than is counted. Meters limit their traffic to less than fullAt (package guard).
	fullAt = 98
	// validFor is the number of windows for which a measurement stays valid after its own.
	validFor = 3
	// readAtOnce bounds the switches that are read at once.
	readAtOnce = 64
)

// window holds the traffic of a link in one window of time. The zero value is not valid.
type window struct {
	used uint64 // bit/s
	// others is the most traffic in the window that may be neither promised nor yielding, in bit/s.
	others uint64
	until  time.Time // zero: forever
	valid  bool
}

// isValid reports whether the measurement is still valid.
func (m *window) isValid(now time.Time) bool {
	return m.valid && (m.until.IsZero() || now.Before(m.until))
}

// counterReading is one reading of a counter.
type counterReading struct {
	bytes uint64
	// created is the earliest time at which the counter may have started at zero.
	created time.Time
}

// round is one reading of all counters: first those of ports, then those of traffic (meters and
// queues), and then those of ports again. Traffic between the second steps of two rounds is thus
// part of the traffic that ports show between the first step of one round and the third step of the
// other.
type round struct {
	before, after map[Link]stats.Sample
	// begun is the time at which the counters of traffic were requested.
	begun  time.Time
	counts map[Counter]counterReading
	failed map[openflow.DatapathID]bool // switches whose counters of traffic could not be read
}

// windowStart holds the readings at the start of a link's window.
type windowStart struct {
	port   stats.Sample
	begun  time.Time
	counts map[Counter]counterReading
}

// Measure reads the counters of links on which something is promised or waits for a promise, and
// the counters of the traffic concerned. Available capacities are computed from the difference of
// the counters in one window of time, so Measure has to be called at regular intervals. Links whose
// counters cannot be read keep the start of their window.
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
		full[l] = a.wasFull(l, b.use(l), &r)
	}
	for l, a := range b.links {
		b.close(l, a, &r, full)
	}
}

// toRead returns the switches whose ports, meters and queues have to be read.
func (b *Book) toRead() (ports, meters, queues map[openflow.DatapathID]bool) {
	ports, meters, queues = map[openflow.DatapathID]bool{}, map[openflow.DatapathID]bool{}, map[openflow.DatapathID]bool{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for l, a := range b.links {
		if b.guardMeter(l) != 0 {
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

// each calls f for every switch, for at most atOnce concurrently, and returns the results
// of the calls without an error.
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

// readTraffic reads the counters of meters and queues. From the bytes of a meter, it subtracts the
// bytes that the meter has dropped. failed holds the switches that could not be read.
func (b *Book) readTraffic(ctx context.Context, from Counters, meters, queues map[openflow.DatapathID]bool) (counts map[Counter]counterReading, failed map[openflow.DatapathID]bool) {
	counts, failed = map[Counter]counterReading{}, map[openflow.DatapathID]bool{}
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
			counts[Counter{Switch: d, Meter: m.Meter}] = counterReading{passed, asked.Add(-m.Duration.Duration())}
		}
	}
	asked = b.now()
	byQueue := each(b.readAtOnce, queues, func(d openflow.DatapathID) ([]openflow.QueueStats, error) { return from.QueueStats(ctx, d) })
	for d := range queues {
		all, ok := byQueue[d]
		failed[d] = failed[d] || !ok
		for _, q := range all {
			counts[Counter{Switch: d, Queue: q.Queue, Port: q.Port}] = counterReading{q.TxBytes, asked.Add(-q.Duration.Duration())}
		}
	}
	return counts, failed
}

// sentBytes returns the number of bytes that a port has sent in the window that ends with a round,
// and the least and the greatest possible length of that window. ok is false if there is no such
// window.
func (a *account) sentBytes(l Link, r *round) (bytes uint64, least, most time.Duration, ok bool) {
	end, read := r.after[l]
	if a.start == nil || !read || end.TxBytes == stats.Unsupported || end.TxBytes < a.start.port.TxBytes {
		return 0, 0, 0, false
	}
	begin := &a.start.port
	least, most = end.Sent.Sub(begin.Received), end.Received.Sub(begin.Sent)
	return end.TxBytes - begin.TxBytes, least, most, least > 0
}

// wasFull reports whether a link may have been sent more than its counters show in the window that
// ends with a round. It returns true for a link that could not be read.
func (a *account) wasFull(l Link, u Use, r *round) bool {
	bytes, least, _, ok := a.sentBytes(l, r)
	return !ok || isFull(u, bits(bytes, least))
}

func isFull(u Use, used uint64) bool { return used >= u.Capacity/100*fullAt }

func bits(bytes uint64, in time.Duration) uint64 { return uint64(float64(bytes) * 8 / in.Seconds()) }

// close ends a link's window, and starts the next. full holds the links that may have dropped
// packets in the window. The lock is held.
func (b *Book) close(l Link, a *account, r *round, full map[Link]bool) {
	begin, read := r.before[l]
	if !read || begin.TxBytes == stats.Unsupported {
		return
	}
	now := &windowStart{begin, r.begun, map[Counter]counterReading{}}
	guard := Counter{Switch: l.Switch, Meter: b.guardMeter(l)}
	if guard.Meter != 0 {
		if r.failed[guard.Switch] {
			return
		}
		now.addCount(guard, r)
	}
	for _, e := range a.entries {
		if c := e.counters[l]; c != (Counter{}) {
			if r.failed[c.Switch] {
				return
			}
			now.addCount(c, r)
		}
	}
	bytes, least, most, ok := a.sentBytes(l, r)
	if ok {
		own := uint64(0)
		if guard.Meter != 0 {
			own = a.start.growth(guard, time.Time{}, time.Time{}, true, r)
		}
		for _, e := range a.entries {
			own += e.carried(l, a.start, r, most, full)
		}
		used := bits(bytes, least)
		a.measured = window{used: used, others: bits(bytes-min(own, bytes), least), until: r.after[l].Received.Add(validFor * most), valid: true}
	}
	a.start = now
}

// addCount records the reading of a counter at the start of a window.
func (o *windowStart) addCount(c Counter, r *round) {
	if x, ok := r.counts[c]; ok {
		o.counts[c] = x
	}
}

// growth returns the number of bytes that a counter has counted at least since the window started.
// The counter is that of a promise that was entered into the book at the time entered. If settled
// is set, the promise's rules have been installed since the time since. A counter whose meter or
// queue is changed may start again at zero.
func (o *windowStart) growth(c Counter, entered, since time.Time, settled bool, r *round) uint64 {
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
		return now.bytes // all of it belongs to this window
	}
	return 0
}

// carried returns the least number of bytes that a promise has carried on a link in the window that
// ends with a round. The window is at most most long.
func (e *entry) carried(l Link, o *windowStart, r *round, most time.Duration, full map[Link]bool) uint64 {
	c := e.counters[l]
	if c == (Counter{}) {
		return 0
	}
	if c.Meter != 0 {
		for _, s := range e.promise.Shares { // packets that an earlier link has dropped did not reach this one
			if s.Link == l {
				break
			}
			if s.Counter == c && (s.Answers > 0) == (e.answers[l] > 0) && full[s.Link] {
				return 0
			}
		}
	}
	since, settled := e.installedAt[l]
	bytes := o.growth(c, e.enteredAt[l], since, settled, r)
	if limit := max(e.rates[l], e.answers[l]); limit > 0 {
		bytes = min(bytes, uint64(float64(limit)*most.Seconds()/8))
	}
	return bytes
}

// RulesInstalled records that the rules for a promise's traffic are in the switches. All traffic
// that the promise's counters count from now on passes its links.
func (b *Book) RulesInstalled(k Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.promises[k]; e != nil {
		for l := range e.counters {
			if _, settled := e.installedAt[l]; !settled {
				e.installedAt[l] = b.now()
			}
		}
	}
}

// inheritCounters sets the counters of a promise that replaces old, or is new if old is nil. A
// counter that both promises have on the same link continues.
func (e *entry) inheritCounters(old *entry, now time.Time) {
	e.counters, e.enteredAt, e.installedAt = map[Link]Counter{}, map[Link]time.Time{}, map[Link]time.Time{}
	for _, s := range e.promise.Shares {
		if s.Counter == (Counter{}) {
			continue
		}
		e.counters[s.Link], e.enteredAt[s.Link] = s.Counter, now
		switch {
		case old != nil && old.counters[s.Link] == s.Counter:
			e.enteredAt[s.Link] = old.enteredAt[s.Link]
			if since, settled := old.installedAt[s.Link]; settled {
				e.installedAt[s.Link] = since
			}
		case s.Counter.Queue != 0: // a queue counts at the port itself
			e.installedAt[s.Link] = now
		}
	}
}

// SetGuardMeter sets the function that returns the meter that all yielding traffic on a link
// passes; zero for none. It must be called before the book is used.
func (b *Book) SetGuardMeter(meter func(Link) uint32) { b.guardMeter = meter }

// Others returns the most of a link's traffic that may be neither promised nor yielding, in bit/s,
// and reports whether that is known. It applies to one window of time: of the readings that are
// compared, one includes the other.
func (b *Book) Others(l Link) (uint64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.measured(l, b.use(l))
	return m.othersRate(b.use(l)), m.valid
}

// othersRate returns the rate of traffic that is neither promised nor yielding, in bit/s, or zero
// if that may be noise.
func (m *window) othersRate(u Use) uint64 {
	if m.others < noise(u, m.used-m.others) {
		return 0
	}
	return m.others
}

// Full reports whether a link is full and carries traffic without a promise.
func (b *Book) Full(l Link) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.use(l)
	m := b.measured(l, u)
	return m.valid && u.Capacity > 0 && isFull(u, m.used) && m.othersRate(u) > 0
}

// measured returns the latest valid measurement of the traffic on a link. The lock is held.
func (b *Book) measured(l Link, u Use) window {
	if a := b.links[l]; a != nil && a.measured.isValid(b.now()) {
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
