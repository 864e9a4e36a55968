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
	// For destinations that were not tried yet, or have just taken something, there are maxFresh couriers, and a
	// sign of each is waited for waitFresh. If there is none it is away, and waited for with maxAway others for
	// waitAway. One that gives a sign and takes nothing is slow: maxSlow of these are tried at once.
	maxFresh, waitFresh = 64, 3 * time.Second
	maxAway, waitAway   = 700, time.Minute
	maxSlow, waitSlow   = 16, time.Second
	// lookAgain is how long is waited after a way was not good, or chunks were not taken.
	lookAgain = time.Second
	// Of a destination's chunks batch are under way, of batchBytes, or one. After turn others that wait have theirs.
	batch, batchBytes, turn = 16, 1 << 20, 5 * time.Second
	// poolBytes are under way to all destinations that have taken something within provenFor, as many to those
	// that are slow, and as many to all others: who takes nothing is in nobody's way but that of his like. A chunk
	// counts leastUnderway at least: so many are under way at one time, too.
	poolBytes, provenFor = hostapi.MaxUnderway / 3, 5 * time.Minute
	leastUnderway        = hostapi.MaxUnderway / hostapi.MaxSends
)

// destination is a name for which there are chunks.
type destination struct {
	name   frame.GUID
	chunks []Kept // in order; those that Node.have has not are over
	active bool   // it waits for a courier, or has one
	// turns are the senders in whose turns it waits; nil while it does not.
	turns map[frame.GUID]struct{}

	// These are its courier's alone.
	state  state
	proven time.Time // when it has taken something last
	quality
}

// state is what was seen of a destination.
type state int

const (
	fresh state = iota
	away
	slow
	states
)

// couriers hand chunks on, one for each destination.
type couriers struct {
	queues                 [states]queue
	proven, unproven, slow *semaphore.Weighted // bytes under way
}

// queue is of destinations that wait for couriers: those for which one sender has left chunks have their turns with
// those of others. Node.mu is held.
type queue struct {
	within  time.Duration // for which a sign of each is waited
	waiting map[frame.GUID][]*destination
	turns   []frame.GUID  // the senders, who has the next turn first
	some    chan struct{} // that there are some
	places  chan struct{} // one for each courier
}

func newQueue(places int, within time.Duration) queue {
	return queue{within: within, waiting: map[frame.GUID][]*destination{}, some: make(chan struct{}, 1), places: make(chan struct{}, places)}
}

// push has a destination wait in the turns of a sender.
func (q *queue) push(sender frame.GUID, d *destination) {
	if _, is := d.turns[sender]; is {
		return
	}
	if d.turns == nil {
		d.turns = map[frame.GUID]struct{}{}
	}
	d.turns[sender] = struct{}{}
	if len(q.waiting[sender]) == 0 {
		q.turns = append(q.turns, sender)
	}
	q.waiting[sender] = append(q.waiting[sender], d)
	select {
	case q.some <- struct{}{}:
	default:
	}
}

// pop is the destination whose turn it is, nil if none waits.
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
		if d.turns != nil { // or it had its turn with another sender's
			d.turns = nil
			return d
		}
	}
	return nil
}

func (c *couriers) init() {
	c.queues = [states]queue{fresh: newQueue(maxFresh, waitFresh), away: newQueue(maxAway, waitAway), slow: newQueue(maxSlow, waitSlow)}
	c.proven, c.unproven, c.slow = semaphore.NewWeighted(poolBytes), semaphore.NewWeighted(poolBytes), semaphore.NewWeighted(poolBytes)
}

// rouse has the chunks for a destination handed on, in the turn of who has sent the first of them. n.mu is held.
func (n *Node) rouse(d *destination) {
	if d.active {
		return
	}
	n.trim(d)
	if len(d.chunks) > 0 {
		d.active = true
		n.queues[d.state].push(d.chunks[0].Source, d)
	}
}

// rouseFor does so in the turn of another sender, too. n.mu is held.
func (n *Node) rouseFor(d *destination, sender frame.GUID) {
	if n.rouse(d); d.turns != nil {
		n.queues[d.state].push(sender, d)
	}
}

// trim forgets the first chunks for a destination that are over. n.mu is held.
func (n *Node) trim(d *destination) {
	for len(d.chunks) > 0 && !n.has(d.chunks[0]) {
		d.chunks = d.chunks[1:]
	}
	if len(d.chunks) == 0 {
		d.chunks = nil // and all that stood before
	}
}

// dispatch gives destinations that wait in a queue their couriers, until ctx ends.
func (n *Node) dispatch(ctx context.Context, q *queue, work *tasks.Group) {
	for {
		select {
		case q.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		d := n.next(ctx, q)
		if d == nil {
			return
		}
		work.Start(func(ctx context.Context) {
			defer func() { <-q.places }()
			n.serve(ctx, d, q.within)
			n.mu.Lock()
			defer n.mu.Unlock()
			d.active = false
			n.rouse(d)
		})
	}
}

// next is the destination whose turn it is; nil if ctx has ended.
func (n *Node) next(ctx context.Context, q *queue) *destination {
	for {
		n.mu.Lock()
		d := q.pop()
		n.mu.Unlock()
		if d != nil {
			return d
		}
		select {
		case <-q.some:
		case <-ctx.Done():
			return nil
		}
	}
}

// serve hands on what there is for a destination, until there is nothing, it takes nothing, or it is the turn of others.
func (n *Node) serve(ctx context.Context, d *destination, within time.Duration) {
	for began := time.Now(); time.Since(began) < turn; {
		n.mu.Lock()
		some := n.first(d)
		n.mu.Unlock()
		if len(some) == 0 || ctx.Err() != nil {
			return
		}
		took, err := n.Host.Ping(d.name, within)
		if err != nil {
			d.state, d.quality = away, quality{}
			_ = tasks.Sleep(ctx, lookAgain)
			return
		}
		if d.measured(took); !d.good() {
			if tasks.Sleep(ctx, lookAgain) != nil {
				return
			}
			continue
		}
		if sent := time.Now(); n.handOn(ctx, d, some) && time.Since(sent) < waitFresh {
			d.state = fresh
			continue
		}
		d.state = slow
		_ = tasks.Sleep(ctx, lookAgain)
		return
	}
}

// first are the oldest chunks for a destination, as many as are handed on at once. n.mu is held.
func (n *Node) first(d *destination) (some []Kept) {
	n.trim(d)
	size := int64(0)
	for _, k := range d.chunks {
		if !n.has(k) {
			continue
		}
		if size += k.Size; len(some) == batch || len(some) > 0 && size > batchBytes {
			break
		}
		some = append(some, k)
	}
	return some
}

// handOn sends chunks to their destination, which is there, and says whether it has taken all that could be sent.
func (n *Node) handOn(ctx context.Context, d *destination, some []Kept) bool {
	pool, bytes := n.unproven, int64(0)
	switch {
	case d.state == slow:
		pool, some = n.slow, some[:1]
	case time.Since(d.proven) < provenFor:
		pool = n.proven
	}
	for _, k := range some {
		bytes += max(k.Size+hostapi.Overhead, leastUnderway)
	}
	if pool.Acquire(ctx, bytes) != nil {
		return false
	}
	defer pool.Release(bytes)
	read, failed := n.read(d, some)
	var taken []Kept
	var all sync.WaitGroup
	var mu sync.Mutex
	failure := func() { mu.Lock(); failed = true; mu.Unlock() }
	for i, k := range some[:len(read)] {
		if read[i] == nil {
			continue // it is lost
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
			break // those behind it are not to come before it
		}
	}
	all.Wait()
	n.drop(taken, nil)
	if len(taken) > 0 {
		d.proven = time.Now()
	}
	return !failed
}

// read reads chunks, as far as the disk gives them back now; those that it never will are lost, and nil. One that it may
// give back later goes behind all others.
func (n *Node) read(d *destination, some []Kept) (all [][]byte, failed bool) {
	for _, k := range some {
		b, err := n.whole(k)
		switch {
		case err == nil:
			all = append(all, b)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, custody.ErrLayout), errors.Is(err, custody.ErrSignature), errors.Is(err, custody.ErrExpired):
			n.drop([]Kept{k}, err)
			all = append(all, nil)
		default:
			n.trouble.Warn(n.Log, "a chunk cannot be read now", "error", err)
			n.mu.Lock()
			defer n.mu.Unlock()
			d.chunks = append(slices.DeleteFunc(d.chunks, func(other Kept) bool { return other.ID == k.ID }), k)
			return all, true
		}
	}
	return all, false
}

// whole reads a chunk, if it is as its sender has signed it.
func (n *Node) whole(k Kept) ([]byte, error) {
	b, err := n.store.Read(k.ID)
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
