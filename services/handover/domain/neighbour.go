package domain

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// maxInflight bounds the concurrent requests of one neighbour.
const maxInflight = 64

// neighbour is a Neighbour with its state.
type neighbour struct {
	Neighbour
	common   *common
	client   *client
	guard    *replayGuard
	outbox   *outbox
	inflight chan struct{}

	mu     sync.Mutex
	heard  time.Time // when it last answered or sent a message
	fault  string    // why the last request failed, if it did
	logged time.Time
}

// newNeighbour returns the neighbour n with its initial state.
func (s *common) newNeighbour(n Neighbour, dial Dialer) *neighbour {
	n.MaxVisitors = cmp.Or(n.MaxVisitors, defaultMaxVisitors)
	return &neighbour{
		Neighbour: n, common: s, client: newClient(n, dial), guard: newReplayGuard(s.timing.Window, s.now()),
		outbox: newOutbox(), inflight: make(chan struct{}, maxInflight),
	}
}

// noteHeard records that the neighbour has sent a message or answered one.
func (n *neighbour) noteHeard(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = now
}

// noteResult records the result of the last request to the neighbour. A refusal is no fault,
// unless the neighbour does not accept our identity, our clock or our messages.
func (n *neighbour) noteResult(err error, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	code := codeOf(err)
	if err == nil || code != "" {
		n.heard, n.fault = now, ""
	}
	if err != nil && (code == "" || code == CodeSender || code == CodeReplay || code == CodeMalformed) {
		n.fault = printable(err.Error())
	}
}

// mayLog reports whether a line about the neighbour may be logged now: at most one in 100 ms.
func (n *neighbour) mayLog(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Sub(n.logged) < 100*time.Millisecond {
		return false
	}
	n.logged = now
	return true
}

// request sends one message and waits for the answer, at most for limit.
func (n *neighbour) request(ctx context.Context, kind Kind, m message, out any, limit time.Duration) error {
	now := n.common.now()
	*m.envelope() = Envelope{From: n.common.self, To: n.Name, Time: now, Nonce: newToken(), Sequence: n.common.sequence.next(now)}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	err := n.client.send(bounded, kind, m, out)
	n.common.metrics.sent(n.Name, kind, err, time.Since(begin))
	if ctx.Err() == nil {
		n.noteResult(err, n.common.now())
	}
	return err
}

// greet sends a hello from time to time, until ctx ends.
func (n *neighbour) greet(ctx context.Context) {
	for {
		// The neighbour's state records whether it answers.
		_ = n.request(ctx, KindHello, &Hello{}, nil, n.common.timing.Request)
		if tasks.Sleep(ctx, n.common.timing.Hello) != nil {
			return
		}
	}
}
