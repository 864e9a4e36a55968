package domain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

// Options is what a Service is made from.
type Options struct {
	// Self is the name of this domain, as in the certificates that neighbours
	// have issued to it.
	Self       string
	Neighbours []Neighbour
	Host       Host
	Store      store.Store
	// Emit publishes an event; nil publishes none.
	Emit   func(kind string, attrs map[string]any)
	Log    *slog.Logger
	Timing Timing
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Dial connects to neighbours; nil means the network of this process.
	Dial Dialer
}

// Service speaks the protocol for one domain.
type Service struct {
	self       string
	host       Host
	store      store.Store
	emit       func(string, map[string]any)
	log        *slog.Logger
	strange    lograte.Limit // lines that any host can cause
	timing     Timing
	now        func() time.Time
	neighbours map[string]*neighbour
	unknown    *neighbour // stands for all who are no neighbours
	sequence   counter
	metrics    *metrics
	tasks      *tasks.Group
	// restored is closed when Restore has ended.
	restored chan struct{}

	mu      sync.Mutex
	locks   map[string]*deviceLock
	records map[string]*Record
	byMAC   map[openflow.MAC]string
	// asking are hardware addresses about which neighbours are being asked,
	// nobody those questions to which the answer was no, and until when that counts.
	asking map[openflow.MAC]bool
	nobody map[question]time.Time
	// done are moves that were completed lately and left no record.
	done *recent
}

// Errors of the calls a Host makes, for errors.Is.
var (
	ErrNoNeighbour = errors.New("no such neighbour")
	ErrNotHere     = errors.New("the device is not attached in this domain")
	ErrMoving      = errors.New("another move of the device is under way")
)

// New returns a service. Call Restore and then Run.
func New(o Options) (*Service, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Emit == nil {
		o.Emit = func(string, map[string]any) {}
	}
	if o.Host == nil || o.Store == nil {
		return nil, errors.New("handover/domain: a host and a store are needed")
	}
	if err := checkNeighbours(o.Self, o.Neighbours); err != nil {
		return nil, fmt.Errorf("handover/domain: %w", err)
	}
	s := &Service{
		self: o.Self, host: o.Host, store: o.Store, emit: o.Emit, log: o.Log, now: o.Now, timing: o.Timing.withDefaults(),
		neighbours: map[string]*neighbour{}, locks: map[string]*deviceLock{}, records: map[string]*Record{},
		byMAC: map[openflow.MAC]string{}, asking: map[openflow.MAC]bool{}, nobody: map[question]time.Time{}, tasks: tasks.New(),
		restored: make(chan struct{}), done: newRecent(4096), unknown: &neighbour{Neighbour: Neighbour{Name: "unknown"}},
	}
	for _, n := range o.Neighbours {
		s.neighbours[n.Name] = s.newNeighbour(n, o.Dial)
	}
	s.metrics = newMetrics(s)
	return s, nil
}

// Restore takes up what was known before a restart. Call it once, when the Host knows
// its devices again, and before Run: until then neighbours wait for an answer.
func (s *Service) Restore(ctx context.Context) error {
	records, unreadable, err := loadRecords(ctx, s.store)
	if err != nil {
		return fmt.Errorf("handover/domain: %w", err)
	}
	for _, key := range unreadable {
		s.log.Error("a record of a roaming device cannot be read and is left out", "key", key)
	}
	for i := range records {
		r := &records[i]
		s.resume(ctx, r)
		s.put(ctx, r)
		if r.Move == nil || !r.Move.In {
			continue
		}
		// It was on its way here: either it has come, or it has to be announced anew.
		if k, ok := s.host.Device(r.ID); ok && k.Here {
			s.arrive(r, nil, s.now())
			s.put(ctx, r)
			continue
		}
		s.abandonIncoming(ctx, r, "the controller was restarted")
		s.put(ctx, r)
	}
	close(s.restored)
	return nil
}

// resume drops from a record what refers to neighbours that are no more: with one
// of the chain goes the device, whose packets have no way any more.
func (s *Service) resume(ctx context.Context, r *Record) {
	for _, name := range []string{r.Upstream, r.Downstream} {
		if name != "" && s.neighbours[name] == nil {
			s.log.Warn("a roaming device is forgotten: there is no such neighbour any more", "device", r.ID, "neighbour", name)
			s.forget(ctx, r)
		}
	}
	kept := r.Outbox[:0]
	for _, o := range r.Outbox {
		if s.neighbours[o.Peer] != nil {
			o.NotBefore = time.Time{} // a restart takes longer
			kept = append(kept, o)
		}
	}
	r.Outbox = kept
	if r.Move != nil && s.neighbours[r.Move.Peer] == nil {
		r.Move = nil
	}
}

// Run delivers what is in the outbox to neighbours and watches over times, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.tasks.Cancel)()
	defer s.tasks.Stop()
	var wg sync.WaitGroup
	for _, n := range s.neighbours {
		wg.Go(func() { s.deliverTo(ctx, n) })
		wg.Go(func() { s.greet(ctx, n) })
	}
	wg.Go(func() { s.watch(ctx) })
	wg.Wait()
	for _, n := range s.neighbours {
		n.client.close()
	}
	return nil
}

// greet says hello now and then.
func (s *Service) greet(ctx context.Context, n *neighbour) {
	for {
		// Whether it answers is noted in its state.
		_ = s.tell(ctx, n, KindHello, &Hello{}, nil, s.timing.Request)
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.timing.Hello):
		}
	}
}

// Upstream returns the neighbour over whose peering the packets of the device
// come, and whether that is so. A Host that restarts asks it for its visitors.
func (s *Service) Upstream(id string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[id]
	if r == nil || r.Upstream == "" {
		return "", false
	}
	return r.Upstream, true
}

// Record returns what is known of a device that is not just at home.
func (s *Service) Record(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[id]
	if r == nil {
		return Record{}, false
	}
	return r.clone(), true
}

// neighbour returns the neighbour of that name, or nil.
func (s *Service) neighbour(name string) *neighbour { return s.neighbours[name] }

// event tells the world that something happened to a device.
func (s *Service) event(kind string, r *Record, attrs map[string]any) {
	if attrs == nil {
		attrs = map[string]any{}
	}
	attrs["device"], attrs["address"] = r.ID, r.IP.String()
	s.emit("handover.domain."+kind, attrs)
	args := []any{"device", r.ID}
	for k, v := range attrs {
		if k != "device" && k != "address" {
			args = append(args, k, v)
		}
	}
	s.log.Info("device between domains: "+kind, args...)
}
