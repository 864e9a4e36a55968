package domain

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// maxInflight bounds the requests of one neighbour that are worked on at once.
const maxInflight = 64

// neighbour is a Neighbour as we deal with it.
type neighbour struct {
	Neighbour
	us       *common
	client   *client
	guard    *guard
	box      *outbox
	inflight chan struct{}

	mu     sync.Mutex
	heard  time.Time // when it last answered or asked
	fault  string    // why the last request came to nothing, if it did
	logged time.Time
}

func (s *common) newNeighbour(n Neighbour, dial Dialer) *neighbour {
	n.MaxVisitors = cmp.Or(n.MaxVisitors, defaultMaxVisitors)
	return &neighbour{
		Neighbour: n, us: s, client: newClient(n, dial), guard: newGuard(s.timing.Window, s.now()),
		box: newOutbox(), inflight: make(chan struct{}, maxInflight),
	}
}

// spoke notes that it has asked something or answered.
func (n *neighbour) spoke(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = now
}

// asked notes how the last request to it went. That it refuses what a device asks
// for is no fault; that it does not take us for who we are, or our time for its own,
// is one.
func (n *neighbour) asked(err error, now time.Time) {
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

// mayLog bounds what one neighbour can make us write.
func (n *neighbour) mayLog(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Sub(n.logged) < 100*time.Millisecond {
		return false
	}
	n.logged = now
	return true
}

// tell sends one message, within the limit.
func (n *neighbour) tell(ctx context.Context, kind Kind, m message, out any, limit time.Duration) error {
	now := n.us.now()
	*m.envelope() = Envelope{From: n.us.self, To: n.Name, Time: now, Nonce: newToken(), Sequence: n.us.sequence.next(now)}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	err := n.client.send(bounded, kind, m, out)
	n.us.metrics.sent(n.Name, kind, err, time.Since(begin))
	if ctx.Err() == nil {
		n.asked(err, n.us.now())
	}
	return err
}

// greet says hello now and then, until ctx ends.
func (n *neighbour) greet(ctx context.Context) {
	for {
		// Whether it answers is noted in its state.
		_ = n.tell(ctx, KindHello, &Hello{}, nil, n.us.timing.Request)
		if tasks.Sleep(ctx, n.us.timing.Hello) != nil {
			return
		}
	}
}
