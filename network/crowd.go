package network

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// crowd schedules the reading of switches that send more messages than they are guaranteed.
// They are read one after another and, while any other switch sends something, for a small
// part of the time. Unread input fills the connection, so the switch has to wait. A switch
// within its guarantee is read at once, however many others exceed theirs.
//
// The order is that of start-time fair queueing: the member that has been read for the shortest
// time is next. A credit puts a switch first that has just joined.
type crowd struct {
	processors int
	width      int // how many are read at one time

	calm atomic.Int64 // when input of a switch outside the crowd was read last, Unix nanoseconds

	mu      sync.Mutex
	reading int
	waiting []*member
	clock   time.Duration // the greatest start tag of a member that was let in
}

// member is the state of one switch in the crowd. It belongs to the switch's reader. The
// crowd's mutex guards start and turn while the switch waits.
type member struct {
	sent  debt          // its messages, as the time in which that many are guaranteed
	over  bool          // it has exceeded the guarantee and still owes something
	start time.Duration // start tag: for how long it has been read
	turn  chan struct{} // closed when its turn begins
	began time.Time     // when its turn began; zero outside
}

const (
	// guaranteedPart is the part of the processors, one in so many, that is guaranteed to all
	// switches together, in equal parts. messageCost is the nominal cost of a message. With 64
	// switches on two processors the guarantee is about 2,000 messages a second for each.
	guaranteedPart = 16
	messageCost    = time.Microsecond
	// claimMessages is how many messages a claim about a host counts for that changes the host
	// table or is refused: it takes several microseconds, and others learn of it.
	claimMessages = 8
	// guaranteedSaved is for how long a silent switch saves up its guarantee. Input that has
	// piled up while the machine stood still puts no switch into the crowd.
	guaranteedSaved = time.Second
	// crowdPart is the part of the processors, one in so many, that the crowd has while other
	// switches send.
	crowdPart = shareOfMachine
	// crowdCredit is how much longer than the others a switch is read that has just joined.
	crowdCredit = 10 * time.Millisecond
	// calmMemory is for how long a switch outside the crowd counts as sending after its last
	// input.
	calmMemory = 100 * time.Millisecond
)

// newCrowd returns a crowd without members. Members are read on at most half of the processors
// at a time.
func newCrowd(processors int) *crowd {
	return &crowd{processors: processors, width: max(1, processors/2)}
}

// enter waits until the switch may be read, which is at once for a switch within its guarantee.
// It reports false if ctx ends before.
func (c *crowd) enter(ctx context.Context, m *member) bool {
	now := time.Now()
	if !m.crowded(now) {
		c.calm.Store(now.UnixNano())
		return true
	}
	if !c.queue(m) {
		select {
		case <-m.turn:
		case <-ctx.Done():
			c.giveUp(m)
			return false
		}
	}
	m.began = time.Now()
	return true
}

// crowded reports whether the switch belongs to the crowd: from when it exceeds its guarantee
// until it owes nothing. Without that hysteresis a switch that sends without pause would be
// read outside the crowd now and then.
func (m *member) crowded(now time.Time) bool {
	m.over = m.sent.beyond(guaranteedSaved, now) > 0 || m.over && m.sent.beyond(0, now) > 0
	return m.over
}

// queue begins the member's turn if there is room, and reports whether there was. Otherwise it
// queues the member.
func (c *crowd) queue(m *member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.start = max(m.start, c.clock-crowdCredit)
	if c.reading < c.width {
		c.letIn(m)
		return true
	}
	m.turn = make(chan struct{})
	c.waiting = append(c.waiting, m)
	return false
}

// giveUp removes a member from the queue, or ends its turn if that has just begun.
func (c *crowd) giveUp(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.waiting, m); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		return
	}
	c.next()
}

// letIn begins the turn of a member; the mutex is held.
func (c *crowd) letIn(m *member) {
	c.reading++
	c.clock = max(c.clock, m.start)
}

// next ends a turn and begins that of the member with the smallest tag; the mutex is held.
func (c *crowd) next() {
	c.reading--
	if len(c.waiting) == 0 {
		return
	}
	m := slices.MinFunc(c.waiting, func(a, b *member) int { return cmp.Compare(a.start, b.start) })
	c.waiting = slices.DeleteFunc(c.waiting, func(o *member) bool { return o == m })
	c.letIn(m)
	close(m.turn)
}

// leave counts messages that were read from one of so many switches, and ends the switch's turn
// if it has one. While other switches send something, it first waits long enough to keep the
// crowd to its part of the processors.
func (c *crowd) leave(ctx context.Context, m *member, messages, switches int) {
	now := time.Now()
	m.sent.add(time.Duration(messages*switches)*messageCost*guaranteedPart/time.Duration(c.processors), now)
	m.sent.forgive(2*guaranteedSaved, now) // what it sent while it was alone must not count for long
	if m.began.IsZero() {
		return
	}
	if now.UnixNano()-c.calm.Load() <= int64(calmMemory) {
		took := min(now.Sub(m.began), shareBatch)
		_ = tasks.Sleep(ctx, took*time.Duration(c.width*crowdPart)/time.Duration(c.processors)-took)
	}
	c.end(m, now)
}

// end ends the turn of a member, if it has one, which was read until the given time.
func (c *crowd) end(m *member, then time.Time) {
	if m.began.IsZero() {
		return
	}
	took := min(then.Sub(m.began), shareBatch)
	m.began = time.Time{}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.start += took
	c.next()
}
