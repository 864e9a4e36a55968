package domain

import (
	"context"
	"errors"
	"sync"
	"time"
)

// maxInflight bounds the requests of one neighbour that are worked on at once.
const maxInflight = 64

// neighbour is a Neighbour as we deal with it.
type neighbour struct {
	Neighbour
	client   *client
	guard    *guard
	box      *outbox
	inflight chan struct{}

	mu     sync.Mutex
	heard  time.Time // when it last answered or asked
	fault  string    // why the last request failed, if it did
	logged time.Time
}

func (s *Service) newNeighbour(n Neighbour, dial Dialer) *neighbour {
	if n.MaxVisitors == 0 {
		n.MaxVisitors = defaultMaxVisitors
	}
	return &neighbour{
		Neighbour: n, client: newClient(n, dial), guard: newGuard(s.timing.Window, s.now()),
		box: newOutbox(), inflight: make(chan struct{}, maxInflight),
	}
}

// seen notes how the last request to it went.
func (n *neighbour) seen(err error, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && codeOf(err) == "" {
		n.fault = printable(err.Error())
		return
	}
	n.heard, n.fault = now, ""
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
func (s *Service) tell(ctx context.Context, n *neighbour, kind Kind, m message, out any, limit time.Duration) error {
	now := s.now()
	*m.envelope() = Envelope{From: s.self, To: n.Name, Time: now, Nonce: newToken(), Sequence: s.sequence.next(now)}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	err := n.client.send(bounded, kind, m, out)
	s.metrics.sent(n.Name, kind, err, time.Since(begin))
	if ctx.Err() == nil {
		n.seen(err, s.now())
	}
	return err
}

// outbox holds the names of devices for which something is owed to a neighbour.
type outbox struct {
	mu      sync.Mutex
	pending map[string]bool
	wake    chan struct{}
}

func newOutbox() *outbox {
	return &outbox{pending: map[string]bool{}, wake: make(chan struct{}, 1)}
}

func (b *outbox) add(id string) {
	b.mu.Lock()
	b.pending[id] = true
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *outbox) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make([]string, 0, len(b.pending))
	for id := range b.pending {
		ids = append(ids, id)
	}
	clear(b.pending)
	return ids
}

// deliverTo delivers what is owed to the neighbour. While it is down or refuses
// for the time being, the pauses grow.
func (s *Service) deliverTo(ctx context.Context, n *neighbour) {
	pause := s.timing.Retry
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.box.wake:
		}
		failed := s.deliverAll(ctx, n, n.box.take())
		if len(failed) == 0 {
			pause = s.timing.Retry
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, s.timing.RetryMax)
		for _, id := range failed {
			n.box.add(id)
		}
	}
}

// deliverAll delivers for several devices at once and returns those for which
// something is left.
func (s *Service) deliverAll(ctx context.Context, n *neighbour, ids []string) []string {
	var mu sync.Mutex
	var failed []string
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, id := range ids {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := s.deliver(ctx, n, id); err != nil {
				mu.Lock()
				failed = append(failed, id)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}

// errLater says that something is still owed.
var errLater = errors.New("not delivered yet")

// talk is held by who tells a neighbour about a device, so that messages arrive
// in the order of their numbers.
func (s *Service) talk(ctx context.Context, n *neighbour, id string) (end func(), err error) {
	return s.lock(ctx, n.Name+" "+id)
}

// deliver sends, in order, what is owed to the neighbour about one device.
func (s *Service) deliver(ctx context.Context, n *neighbour, id string) error {
	end, err := s.talk(ctx, n, id)
	if err != nil {
		return err
	}
	defer end()
	return s.deliverOwed(ctx, n, id, false)
}

// deliverOwed is deliver for who holds the talk already. With all it sends also
// what is held back.
func (s *Service) deliverOwed(ctx context.Context, n *neighbour, id string, all bool) error {
	for {
		r := s.record(id)
		if r == nil {
			return nil
		}
		o, ok := r.owedTo(n.Name)
		if !ok || !all && s.now().Before(o.NotBefore) {
			return nil
		}
		err := s.tell(ctx, n, o.Kind, o.message(r), nil, s.timing.Request)
		if code := codeOf(err); err != nil && (code == "" || code.passing()) {
			return errors.Join(errLater, err)
		}
		if err := s.delivered(ctx, n, id, o, err); err != nil {
			return err
		}
	}
}

func (r *Record) owedTo(peer string) (Owed, bool) {
	for _, o := range r.Owed {
		if o.Peer == peer {
			return o, true
		}
	}
	return Owed{}, false
}

func (o Owed) message(r *Record) message {
	switch o.Kind {
	case KindReady:
		return &Ready{Subject: r.subject(), Move: o.Move}
	case KindComplete:
		return &Complete{Subject: r.subject(), Move: o.Move, Host: o.Host, Since: o.Since, Evidence: o.Evidence}
	default:
		return &Withdraw{Subject: r.subject(), Move: o.Move, Reason: o.Reason}
	}
}
