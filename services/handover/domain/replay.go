package domain

import (
	"sync"
	"time"
)

// Bounds of what is remembered of one neighbour.
const (
	maxNonces    = 1 << 16
	maxSequences = 1 << 16
)

// replayGuard accepts each message of one neighbour only once. It forgets a message when the
// message would be too old anyway, so the window bounds its memory. If the bound is reached
// messages are refused, not accepted.
type replayGuard struct {
	window time.Duration
	// started is when this domain started. A message from before may have been accepted already,
	// which is no longer known.
	started time.Time

	mu        sync.Mutex
	nonces    map[string]time.Time // when each can be forgotten
	sequences map[string]sequence  // latest by device
	swept     time.Time
}

// sequence is the latest sequence number of a device.
type sequence struct {
	last  uint64
	until time.Time
}

// newReplayGuard returns a replayGuard for messages sent after started.
func newReplayGuard(window time.Duration, started time.Time) *replayGuard {
	return &replayGuard{window: window, started: started, nonces: map[string]time.Time{}, sequences: map[string]sequence{}, swept: started}
}

// accept refuses a message that is not fresh. device is empty for a message that is about no device.
func (g *replayGuard) accept(e *Envelope, device string, now time.Time) *Refusal {
	switch age := now.Sub(e.Time); {
	case age > g.window, age < -g.window:
		return refuse(CodeReplay, "the message was sent %v ago by our clock: at most %v", age.Round(time.Millisecond), g.window)
	case e.Time.Before(g.started):
		return refuse(CodeReplay, "the message is from before this controller started: send it anew")
	case !tokenForm.MatchString(e.Nonce):
		return refuse(CodeMalformed, "nonce: 32 hex digits")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweep(now)
	if _, used := g.nonces[e.Nonce]; used {
		return refuse(CodeReplay, "the message has been used already")
	}
	last, known := g.sequences[device]
	if device != "" && known && e.Sequence <= last.last {
		return refuse(CodeReplay, "a later message about the device has been used already")
	}
	if len(g.nonces) >= maxNonces || !known && len(g.sequences) >= maxSequences {
		return refuse(CodeBusy, "too many messages within %v", g.window)
	}
	// The window extends both ways: a message whose sender's clock is ahead of ours can be repeated
	// for up to twice the window.
	until := now.Add(2 * g.window)
	g.nonces[e.Nonce] = until
	if device != "" {
		g.sequences[device] = sequence{e.Sequence, until}
	}
	return nil
}

// sweep removes the nonces and sequences of messages that are too old to be repeated.
func (g *replayGuard) sweep(now time.Time) {
	if now.Sub(g.swept) < g.window/4 {
		return
	}
	g.swept = now
	for n, until := range g.nonces {
		if now.After(until) {
			delete(g.nonces, n)
		}
	}
	for d, s := range g.sequences {
		if now.After(s.until) {
			delete(g.sequences, d)
		}
	}
}

// counter numbers our own messages. The numbers follow the clock, so they keep growing over a
// restart.
type counter struct {
	mu   sync.Mutex
	last uint64
}

// next returns the next number.
func (c *counter) next(now time.Time) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, uint64(max(0, now.UnixNano())))
	return c.last
}
