package egress

import (
	"context"
	"sync"
	"time"
)

// Bounds of a player's queue. A burst arrives at once and has to fit. A longer queue, or older
// messages, would be useless to a live viewer.
const (
	maxQueuedBytes = 4 << 20 // in bytes
	maxQueuedTime  = time.Second
	maxQueuedTexts = 64
)

// message is a message to a player.
type message struct {
	data         []byte
	text         bool
	picture, key bool
	at           time.Time
}

// queue holds the messages to a player, in order.
type queue struct {
	ready chan struct{}

	mu    sync.Mutex
	all   []message
	bytes int
	texts int
	skip  bool // pictures are skipped until a key frame
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// put adds a picture or sound. If the player is too slow, put drops the pictures and sound in the
// queue, skips pictures until the next key frame, and returns false.
func (q *queue) put(m message) (fits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	fits = q.bytes+len(m.data) <= maxQueuedBytes && !q.overdue(m.at)
	if !fits {
		q.skip = true
		q.drop()
	}
	if q.skip = q.skip && !m.key; q.skip && m.picture {
		return fits
	}
	q.add(m)
	return fits
}

// overdue reports whether the first media message has waited for too long. q.mu is held.
func (q *queue) overdue(now time.Time) bool {
	for _, m := range q.all {
		if !m.text {
			return now.Sub(m.at) > maxQueuedTime
		}
	}
	return false
}

// drop removes pictures and sound. q.mu is held.
func (q *queue) drop() {
	kept := q.all[:0]
	for _, m := range q.all {
		if m.text {
			kept = append(kept, m)
		}
	}
	clear(q.all[len(kept):])
	q.all, q.bytes = kept, 0
}

// putText adds a text, and reports whether there was room for it.
func (q *queue) putText(text []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.texts >= maxQueuedTexts {
		return false
	}
	q.texts++
	q.add(message{data: text, text: true})
	return true
}

func (q *queue) add(m message) {
	if !m.text {
		q.bytes += len(m.data)
	}
	q.all = append(q.all, m)
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// next waits for the first message, and removes it from the queue.
func (q *queue) next(ctx context.Context) (message, error) {
	for {
		if m, ok := q.pop(); ok {
			return m, nil
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return message{}, context.Cause(ctx)
		}
	}
}

func (q *queue) pop() (m message, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.all) == 0 {
		return m, false
	}
	m = q.all[0]
	q.all[0] = message{}
	if len(q.all) == 1 {
		q.all = q.all[:0] // reuse the slice
	} else {
		q.all = q.all[1:]
	}
	if m.text {
		q.texts--
	} else {
		q.bytes -= len(m.data)
	}
	return m, true
}
