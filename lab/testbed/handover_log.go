package testbed

import (
	"slices"
	"sync"
	"time"
)

// Inside is a host of the lab at which this process can open sockets. So both ends of a measurement
// use the same clock.
type Inside interface {
	Do(f func() error) error
}

// maxMessages bounds the messages of a measurement: more than an hour at 1,000 a second.
const maxMessages = 1 << 22

// message is one numbered message. Its times are nanoseconds of the wall clock, which is the clock
// of the kernel's timestamps of arriving packets.
type message struct {
	sent, got int64 // got is 0 until the first copy arrives
	copies    int
	overtaken bool // reports whether a later message had arrived before it
}

// deliveries records what happens to numbered messages while they are sent.
type deliveries struct {
	mu       sync.Mutex
	messages []message
	highest  int // number of the latest message that has arrived; -1 if none has
	received int
	last     int64 // time of the last arrival
	refused  int
}

func newDeliveries() *deliveries { return &deliveries{highest: -1} }

// next records that a message is sent and returns the message's number. It returns false if no more
// messages can be recorded.
func (d *deliveries) next(at int64) (int, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.messages) == maxMessages {
		return 0, false
	}
	d.messages = append(d.messages, message{sent: at})
	return len(d.messages) - 1, true
}

// refuse records that the sender's own kernel has not accepted a message.
func (d *deliveries) refuse() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused++
}

// arrived records a copy of a message. It ignores numbers that have not been sent.
func (d *deliveries) arrived(number int, at int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if number < 0 || number >= len(d.messages) {
		return
	}
	m := &d.messages[number]
	m.copies++
	d.last = max(d.last, at)
	if m.copies > 1 {
		return
	}
	m.got, m.overtaken = at, number < d.highest
	d.highest = max(d.highest, number)
	d.received++
}

// count returns the number of messages that were sent, and of those that have arrived.
func (d *deliveries) count() (sent, received int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.messages), d.received
}

// lastArrival returns the time of the last arrival, or the zero time if nothing has arrived.
func (d *deliveries) lastArrival() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == 0 {
		return time.Time{}
	}
	return time.Unix(0, d.last)
}

// finish returns the record so far.
func (d *deliveries) finish() *StreamLog {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &StreamLog{messages: slices.Clone(d.messages), ended: time.Now().UnixNano(), refused: d.refused}
	for i, m := range l.messages {
		if m.got != 0 {
			l.order = append(l.order, i)
		}
	}
	slices.SortStableFunc(l.order, func(a, b int) int { return int(l.messages[a].got - l.messages[b].got) })
	return l
}

// StreamLog is the record of a stream.
type StreamLog struct {
	messages []message
	order    []int // numbers of the messages that arrived, in the order of arrival
	ended    int64
	refused  int
}

// StreamReport summarises the messages that were sent in a span of time.
type StreamReport struct {
	Sent, Received, Lost, Doubled, Reordered int
	// Gap is the longest time without an arrival, less the sender's own spacing, so that a sender
	// that was late makes no gap. GapAt is the beginning of the gap.
	Gap   time.Duration
	GapAt time.Time
}

// All reports on the whole stream.
func (l *StreamLog) All() StreamReport {
	return l.Between(time.Unix(0, 0), time.Unix(0, l.ended))
}

// Refused returns the number of messages that the sender's own kernel has not accepted. They also
// count as lost.
func (l *StreamLog) Refused() int { return l.refused }

// Between reports on the messages sent from one time until another, and on every gap that overlaps
// that span.
func (l *StreamLog) Between(from, to time.Time) StreamReport {
	begin, end := from.UnixNano(), to.UnixNano()
	var r StreamReport
	first, last := l.sentIn(begin, end)
	for _, m := range l.messages[first:last] {
		r.Sent++
		switch {
		case m.copies == 0:
			r.Lost++
		case m.copies > 1:
			r.Doubled++
		}
		if m.overtaken {
			r.Reordered++
		}
	}
	r.Received = r.Sent - r.Lost
	gap, at := l.longestSilence(begin, end)
	r.Gap, r.GapAt = time.Duration(gap), time.Unix(0, at)
	return r
}

// LastLate returns the time of the last arrival of a message that was sent from one time until
// another and took longer than limit, or the zero time if there is none.
func (l *StreamLog) LastLate(from, to time.Time, limit time.Duration) time.Time {
	var last int64
	first, end := l.sentIn(from.UnixNano(), to.UnixNano())
	for _, m := range l.messages[first:end] {
		if m.got-m.sent > int64(limit) {
			last = max(last, m.got)
		}
	}
	if last == 0 {
		return time.Time{}
	}
	return time.Unix(0, last)
}

// sentIn returns the numbers, from first until before last, of the messages sent in [begin, end).
func (l *StreamLog) sentIn(begin, end int64) (first, last int) {
	bySent := func(m message, at int64) int {
		if m.sent < at {
			return -1
		}
		return 1
	}
	first, _ = slices.BinarySearchFunc(l.messages, begin, bySent)
	last, _ = slices.BinarySearchFunc(l.messages, end, bySent)
	return first, max(first, last)
}

// longestSilence examines each pair of successive arrivals that overlaps the span.
func (l *StreamLog) longestSilence(begin, end int64) (gap, at int64) {
	if len(l.messages) == 0 {
		return 0, begin
	}
	see := func(from, until, spacing int64) {
		if from >= end || until <= begin {
			return
		}
		if g := until - from - spacing; g > gap {
			gap, at = g, from
		}
	}
	at = begin
	if len(l.order) == 0 {
		see(l.messages[0].sent, l.ended, 0)
		return gap, at
	}
	// The time before the first arrival is not examined.
	for i, number := range l.order {
		m := l.messages[number]
		until := int64(0)
		switch {
		case i+1 < len(l.order):
			until = l.messages[l.order[i+1]].got
		case number+1 < len(l.messages): // No later message has arrived.
			until = l.ended
		default:
			continue
		}
		spacing := int64(0)
		if number+1 < len(l.messages) {
			spacing = l.messages[number+1].sent - m.sent
		}
		see(m.got, until, spacing)
	}
	return gap, at
}
