package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// Destinations that are new, or have just taken chunks, are served by maxFresh couriers, which
	// wait for an answer to a ping for freshTimeout. A destination that does not answer is away: up
	// to maxAway of these are pinged with awayTimeout. A destination that answers but takes nothing
	// is slow: maxSlow of these are served at one time.
	maxFresh, freshTimeout = 64, 3 * time.Second
	maxAway, awayTimeout   = 700, time.Minute
	maxSlow, slowTimeout   = 16, time.Second
	// retryInterval is the pause after a path was not good, or chunks were not taken.
	retryInterval = time.Second
	// At most batch chunks, and at most batchBytes or one chunk, of a destination are in flight.
	// After maxTurn, a courier leaves its destination, so that other waiting destinations are
	// served.
	batch, batchBytes, maxTurn = 16, 1 << 20, 5 * time.Second
	// poolBytes limits the bytes in flight to the destinations that have taken something within
	// provenLifetime; the same limit applies to slow destinations and to all others, so that a
	// destination that takes nothing only delays others of its kind. A chunk counts as at least
	// minInFlight, which also limits the number of chunks.
	poolBytes, provenLifetime = hostapi.MaxUnderway / 3, 5 * time.Minute
	minInFlight               = hostapi.MaxUnderway / hostapi.MaxSends
)

// destination is a name for which there are chunks.
type destination struct {
	name   frame.GUID
	chunks []Kept // in order; chunks that are not in Node.kept were removed
	active bool   // it waits for a courier or has one
	// senders holds the senders in whose queues the destination waits; it is nil while the
	// destination does not wait.
	senders map[frame.GUID]struct{}

	// Only the destination's courier uses the following fields.
	state  state
	proven time.Time // when it last took something
	quality
}

// state is the observed state of a destination.
type state int

const (
	fresh state = iota
	away
	slow
	states
)

// couriers deliver chunks, one courier for each destination.
type couriers struct {
	queues                 [states]queue
	proven, unproven, slow *semaphore.Weighted // bytes in flight
}

// queue holds destinations that wait for couriers. The senders of their chunks take turns. Node.mu
// is held.
type queue struct {
	pingTimeout time.Duration // how long a courier waits for the answer to a ping
	waiting     map[frame.GUID][]*destination
	turns       []frame.GUID  // the senders, the next one first
	ready       chan struct{} // signals that destinations wait
	slots       chan struct{} // one element for each courier
}

func newQueue(slots int, pingTimeout time.Duration) queue {
	return queue{pingTimeout: pingTimeout, waiting: map[frame.GUID][]*destination{}, ready: make(chan struct{}, 1), slots: make(chan struct{}, slots)}
}

// push adds a destination to the queue of a sender.
func (q *queue) push(sender frame.GUID, d *destination) {
	if _, ok := d.senders[sender]; ok {
		return
	}
	if d.senders == nil {
		d.senders = map[frame.GUID]struct{}{}
	}
	d.senders[sender] = struct{}{}
	if len(q.waiting[sender]) == 0 {
		q.turns = append(q.turns, sender)
	}
	q.waiting[sender] = append(q.waiting[sender], d)
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// pop returns the next destination, or nil if none waits.
func (q *queue) pop() *destination {
	for len(q.turns) > 0 {
		sender := q.turns[0]
		q.turns = q.turns[1:]
		d := q.waiting[sender][0]
		if rest := q.waiting[sender][1:]; len(rest) > 0 {
			q.waiting[sender] = rest
			q.turns = append(q.turns, sender)
		} else {
			delete(q.waiting, sender)
		}
		if d.senders != nil { // otherwise it had its turn in another sender's queue
			d.senders = nil
			return d
		}
	}
	return nil
}

func (c *couriers) init() {
	c.queues = [states]queue{fresh: newQueue(maxFresh, freshTimeout), away: newQueue(maxAway, awayTimeout), slow: newQueue(maxSlow, slowTimeout)}
	c.proven, c.unproven, c.slow = semaphore.NewWeighted(poolBytes), semaphore.NewWeighted(poolBytes), semaphore.NewWeighted(poolBytes)
}

// schedule queues a destination for delivery, in the queue of the sender of its first chunk. n.mu
// is held.
func (n *Node) schedule(d *destination) {
	if d.active {
		return
	}
	n.trim(d)
	if len(d.chunks) > 0 {
		d.active = true
		n.queues[d.state].push(d.chunks[0].Source, d)
	}
}

// scheduleFor queues a destination in the queue of another sender as well. n.mu is held.
func (n *Node) scheduleFor(d *destination, sender frame.GUID) {
	if n.schedule(d); d.senders != nil {
		n.queues[d.state].push(sender, d)
	}
}

// trim removes the first chunks of a destination that are no longer stored. n.mu is held.
func (n *Node) trim(d *destination) {
	for len(d.chunks) > 0 && !n.isKept(d.chunks[0]) {
		d.chunks = d.chunks[1:]
	}
	if len(d.chunks) == 0 {
		d.chunks = nil // frees the memory of removed chunks
	}
}

// dispatch starts couriers for the destinations in a queue until ctx ends.
func (n *Node) dispatch(ctx context.Context, q *queue, work *tasks.Group) {
	for {
		select {
		case q.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		d := n.nextDestination(ctx, q)
		if d == nil {
			return
		}
		work.Start(func(ctx context.Context) {
			defer func() { <-q.slots }()
			n.serve(ctx, d, q.pingTimeout)
			n.mu.Lock()
			defer n.mu.Unlock()
			d.active = false
			n.schedule(d)
		})
	}
}

// nextDestination waits for the next destination of a queue; it returns nil if ctx has ended.
func (n *Node) nextDestination(ctx context.Context, q *queue) *destination {
	for {
		n.mu.Lock()
		d := q.pop()
		n.mu.Unlock()
		if d != nil {
			return d
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return nil
		}
	}
}

// serve delivers chunks to a destination until there are none, it takes none, or its turn has
// ended.
func (n *Node) serve(ctx context.Context, d *destination, pingTimeout time.Duration) {
	for began := time.Now(); time.Since(began) < maxTurn; {
		n.mu.Lock()
		chunks := n.nextBatch(d)
		n.mu.Unlock()
		if len(chunks) == 0 || ctx.Err() != nil {
			return
		}
		roundTrip, err := n.Host.Ping(d.name, pingTimeout)
		if err != nil {
			d.state, d.quality = away, quality{}
			_ = tasks.Sleep(ctx, retryInterval)
			return
		}
		if d.add(roundTrip); !d.isGood() {
			if tasks.Sleep(ctx, retryInterval) != nil {
				return
			}
			continue
		}
		if sent := time.Now(); n.deliver(ctx, d, chunks) && time.Since(sent) < freshTimeout {
			d.state = fresh
			continue
		}
		d.state = slow
		_ = tasks.Sleep(ctx, retryInterval)
		return
	}
}

// nextBatch returns the oldest chunks for a destination, up to the limit for one delivery. n.mu is
// held.
func (n *Node) nextBatch(d *destination) (chunks []Kept) {
	n.trim(d)
	size := int64(0)
	for _, k := range d.chunks {
		if !n.isKept(k) {
			continue
		}
		if size += k.Size; len(chunks) == batch || len(chunks) > 0 && size > batchBytes {
			break
		}
		chunks = append(chunks, k)
	}
	return chunks
}

// deliver sends chunks to a destination that is present, and reports whether it has taken all that
// could be sent.
func (n *Node) deliver(ctx context.Context, d *destination, chunks []Kept) bool {
	pool, bytes := n.unproven, int64(0)
	switch {
	case d.state == slow:
		pool, chunks = n.slow, chunks[:1]
	case time.Since(d.proven) < provenLifetime:
		pool = n.proven
	}
	for _, k := range chunks {
		bytes += max(k.Size+hostapi.Overhead, minInFlight)
	}
	if pool.Acquire(ctx, bytes) != nil {
		return false
	}
	defer pool.Release(bytes)
	read, failed := n.read(d, chunks)
	var taken []Kept
	var all sync.WaitGroup
	var mu sync.Mutex
	failure := func() { mu.Lock(); failed = true; mu.Unlock() }
	for i, k := range chunks[:len(read)] {
		if read[i] == nil {
			continue // the chunk is lost
		}
		all.Add(1)
		err := n.Host.Send(ctx, d.name, frame.Custody, read[i], func(err error) {
			defer all.Done()
			if err != nil {
				failure()
				return
			}
			mu.Lock()
			defer mu.Unlock()
			taken = append(taken, k)
		})
		if err != nil {
			failure()
			all.Done()
			break // later chunks must not arrive before it
		}
	}
	all.Wait()
	n.remove(taken, nil)
	if len(taken) > 0 {
		d.proven = time.Now()
	}
	return !failed
}

// read reads chunks from the disk. A chunk that cannot be read any more is lost, and nil in the
// result. If reading a chunk fails for now, that chunk is moved behind all others, and read returns
// the chunks before it with failed set.
func (n *Node) read(d *destination, chunks []Kept) (all [][]byte, failed bool) {
	for _, k := range chunks {
		b, err := n.readVerified(k)
		switch {
		case err == nil:
			all = append(all, b)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, custody.ErrLayout), errors.Is(err, custody.ErrSignature), errors.Is(err, custody.ErrExpired):
			n.remove([]Kept{k}, err)
			all = append(all, nil)
		default:
			n.diskWarnLimit.Warn(n.Log, "a chunk cannot be read now", "error", err)
			n.mu.Lock()
			defer n.mu.Unlock()
			d.chunks = append(slices.DeleteFunc(d.chunks, func(other Kept) bool { return other.ID == k.ID }), k)
			return all, true
		}
	}
	return all, false
}

// readVerified reads a chunk and verifies that it is valid and unchanged.
func (n *Node) readVerified(k Kept) ([]byte, error) {
	b, err := n.store.Read(k.ID, k.Place)
	if err != nil {
		return nil, err
	}
	c, err := custody.Parse(b)
	switch {
	case err != nil:
		return nil, err
	case time.Now().After(c.Until):
		return nil, custody.ErrExpired
	case c.ID != k.ID:
		return nil, fmt.Errorf("the file holds chunk %d from %v for %v: %w", c.Number, c.Source, c.Destination, custody.ErrSignature)
	}
	return b, c.Verify()
}
