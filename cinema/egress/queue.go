package egress

import (
	"context"
	"sync"
	"time"
)

// What may wait for a player: a burst comes at once, and has to fit. More, or what has waited for
// longer, is of no use to who watches live.
const (
	maxWaiting      = 4 << 20 // in bytes
	maxWaitingTime  = time.Second
	maxWaitingTexts = 64
)

// message is one that a player is to get.
type message struct {
	data         []byte
	text         bool
	picture, key bool
	at           time.Time
}

// queue is what waits for a player, in order.
type queue struct {
	ready chan struct{}

	mu    sync.Mutex
	all   []message
	bytes int
	texts int
	skip  bool // pictures are left out until a key frame
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// put adds a picture or sound. It returns false if the player is too slow: then all that waits is
// left out, and pictures until the next key frame.
func (q *queue) put(m message) (fits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	fits = q.bytes+len(m.data) <= maxWaiting && !q.late(m.at)
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

// late says whether the first that waits does so for too long. q.mu is held.
func (q *queue) late(now time.Time) bool {
	for _, m := range q.all {
		if !m.text {
			return now.Sub(m.at) > maxWaitingTime
		}
	}
	return false
}

// drop forgets pictures and sound. q.mu is held.
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

// tell adds a text; false if too many wait.
func (q *queue) tell(text []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.texts >= maxWaitingTexts {
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

// next takes the first that waits, as soon as there is one.
func (q *queue) next(ctx context.Context) (message, error) {
	for {
		if m, is := q.take(); is {
			return m, nil
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return message{}, context.Cause(ctx)
		}
	}
}

func (q *queue) take() (m message, is bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.all) == 0 {
		return m, false
	}
	m = q.all[0]
	q.all[0] = message{}
	if len(q.all) == 1 {
		q.all = q.all[:0] // its place is for the next one
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
