package domain

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
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
	fault  string    // why the last request came to nothing, if it did
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
func (s *Service) tell(ctx context.Context, n *neighbour, kind Kind, m message, out any, limit time.Duration) error {
	now := s.now()
	*m.envelope() = Envelope{From: s.self, To: n.Name, Time: now, Nonce: newToken(), Sequence: s.sequence.next(now)}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	err := n.client.send(bounded, kind, m, out)
	s.metrics.sent(n.Name, kind, err, time.Since(begin))
	if ctx.Err() == nil {
		n.asked(err, s.now())
	}
	return err
}

// outbox holds the names of devices for which something is to be sent to a neighbour.
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

// deliverTo delivers what is in the outbox to the neighbour. What fails is tried again
// after pauses that grow, for each device by itself: one of which the neighbour
// wants to know nothing holds up no other.
func (s *Service) deliverTo(ctx context.Context, n *neighbour) {
	late := retries{}
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		var ids []string
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			ids = late.due(s.now())
		case <-n.box.wake:
			ids = n.box.take()
		}
		failed := s.deliverAll(ctx, n, ids)
		for _, id := range ids {
			if slices.Contains(failed, id) {
				late.add(id, s.now(), s.timing)
			} else {
				delete(late, id)
			}
		}
		if next, any := late.next(); any {
			again.Reset(next.Sub(s.now()))
		}
	}
}

// retries are the devices for which a delivery has failed, and when it is tried
// again.
type retries map[string]retry

type retry struct {
	at    time.Time
	pause time.Duration
}

func (r retries) add(id string, now time.Time, t Timing) {
	pause := min(max(2*r[id].pause, t.Retry), t.RetryMax)
	r[id] = retry{now.Add(pause), pause}
}

func (r retries) due(now time.Time) (ids []string) {
	for id, x := range r {
		if !x.at.After(now) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (r retries) next() (first time.Time, any bool) {
	for _, x := range r {
		if !any || x.at.Before(first) {
			first, any = x.at, true
		}
	}
	return first, any
}

// deliverAll delivers for several devices at once and returns those for which
// something is left.
func (s *Service) deliverAll(ctx context.Context, n *neighbour, ids []string) []string {
	var mu sync.Mutex
	var failed []string
	tasks.Each(ids, 16, func(id string) {
		if err := s.deliver(ctx, n, id); err != nil {
			mu.Lock()
			failed = append(failed, id)
			mu.Unlock()
		}
	})
	return failed
}

// errLater says that something is still in the outbox.
var errLater = errors.New("not delivered yet")

// talk is held by who tells a neighbour about a device, so that messages arrive
// in the order of their numbers.
func (s *Service) talk(ctx context.Context, n *neighbour, id string) (end func(), err error) {
	return s.lock(ctx, n.Name+" "+id)
}

// deliver sends, in order, what is in the outbox to the neighbour about one device.
func (s *Service) deliver(ctx context.Context, n *neighbour, id string) error {
	end, err := s.talk(ctx, n, id)
	if err != nil {
		return err
	}
	defer end()
	return s.deliverUnsent(ctx, n, id, false)
}

// deliverUnsent is deliver for who holds the talk already. With all it sends also
// what is held back.
func (s *Service) deliverUnsent(ctx context.Context, n *neighbour, id string, all bool) error {
	for {
		r := s.record(id)
		if r == nil {
			return nil
		}
		o, ok := r.unsentTo(n.Name)
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

func (r *Record) unsentTo(peer string) (Unsent, bool) {
	for _, o := range r.Outbox {
		if o.Peer == peer {
			return o, true
		}
	}
	return Unsent{}, false
}

func (o Unsent) message(r *Record) message {
	switch o.Kind {
	case KindReady:
		return &Ready{Subject: r.subject(), Move: o.Move}
	case KindComplete:
		return &Complete{Subject: r.subject(), Move: o.Move, Host: o.Host, Since: o.Since, Evidence: o.Evidence}
	default:
		return &Withdraw{Subject: r.subject(), Move: o.Move, Reason: o.Reason}
	}
}
