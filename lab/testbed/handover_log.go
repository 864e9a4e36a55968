package testbed

import (
	"slices"
	"sync"
	"time"
)

// Inside is a place where sockets can be opened from this process: a host of
// the lab. Both ends of a measurement then live by one clock.
type Inside interface {
	Do(f func() error) error
}

// maxMessages bounds what a measurement remembers: over an hour at 1,000 a second.
const maxMessages = 1 << 22

// message is one numbered message; times are nanoseconds of the wall clock,
// because that is what the kernel stamps arriving packets with.
type message struct {
	sent, got int64 // got is 0 until the first copy arrives
	copies    int
	overtaken bool // a later message had arrived before it
}

// deliveries remembers what became of numbered messages while they are sent.
type deliveries struct {
	mu       sync.Mutex
	messages []message
	highest  int // number of the latest message that has arrived; -1 for none
	received int
	last     int64 // when anything arrived last
	refused  int
}

func newDeliveries() *deliveries { return &deliveries{highest: -1} }

// next notes that a message is sent and returns its number, or false when no
// more can be remembered.
func (d *deliveries) next(at int64) (int, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.messages) == maxMessages {
		return 0, false
	}
	d.messages = append(d.messages, message{sent: at})
	return len(d.messages) - 1, true
}

// refuse notes that the sender's own kernel would not take a message.
func (d *deliveries) refuse() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused++
}

// arrived notes a copy of a message. Numbers that nobody has sent are ignored.
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

// count is how many messages were sent, and how many of them have arrived.
func (d *deliveries) count() (sent, received int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.messages), d.received
}

// lastArrival is when anything arrived last; zero if nothing has.
func (d *deliveries) lastArrival() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == 0 {
		return time.Time{}
	}
	return time.Unix(0, d.last)
}

// finish is the record as it is now.
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
	order    []int // the messages that arrived, by when
	ended    int64
	refused  int
}

// StreamReport says what became of the messages sent in a span of time.
type StreamReport struct {
	Sent, Received, Lost, Doubled, Reordered int
	// Gap is the longest silence at the receiver beyond the sender's own spacing,
	// so that a sender that was late itself makes no gap. GapAt is when it began.
	Gap   time.Duration
	GapAt time.Time
}

// All reports on the whole stream.
func (l *StreamLog) All() StreamReport {
	return l.Between(time.Unix(0, 0), time.Unix(0, l.ended))
}

// Refused is how many messages the sender's own kernel would not take; they
// count as lost too.
func (l *StreamLog) Refused() int { return l.refused }

// Between reports on the messages sent from one time until another, and on
// every silence that began, ended or lasted in between.
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

// sentIn are the numbers, from first until before last, sent in [begin, end).
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

// longestSilence looks at every pair of arrivals that follow each other and
// whose time between overlaps the span.
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
	// Before the first message arrives there is nothing to compare with but its own sending.
	for i, number := range l.order {
		m := l.messages[number]
		until := int64(0)
		switch {
		case i+1 < len(l.order):
			until = l.messages[l.order[i+1]].got
		case number+1 < len(l.messages): // what was sent later never arrived
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
