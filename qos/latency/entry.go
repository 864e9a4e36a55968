package latency

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/store"
)

// States of a class.
const (
	// StateProvisioning: it is being looked at, or brought into the switches.
	StateProvisioning = "provisioning"
	// StateActive: it has its queues and rules.
	StateActive = "active"
	// StateDegraded: it was accepted, and a part of the network that it needs is gone.
	StateDegraded = "degraded"
	// StateIneffective: packets of the class do not reach its queue somewhere.
	StateIneffective = "ineffective"
)

// entry is a class with what has become of it. The service's lock guards it.
type entry struct {
	class Class
	queue uint32
	placement
	// leaving are the ports of ways that it is being moved from: their queues stay until
	// no rule uses them.
	leaving  []place
	accepted time.Time
	// unbooked says that default rates are not in the book yet, because there was a port
	// whose capacity was not known.
	unbooked bool

	state, reason string
	// unmarked is where no classifier knows its mark; zero if there is no such place.
	// doubt says that it seemed so once.
	unmarked place
	doubt    bool
	// withdraw ends provisioning; done is closed when that is over.
	withdraw context.CancelCauseFunc
	done     chan struct{}

	// work is held by who removes it or moves it to another way.
	work sync.Mutex

	// carriage is where its packets go under the headers of those who carry them.
	carriage carriage

	samples map[place]*sample
	// overlaps are the classes that have packets of this one and win, by name.
	overlaps map[string]overlap
}

// placement is where a class is, or will be as soon as it is installed.
type placement struct {
	// routes is nil until the class has been admitted.
	routes []Route
	// userspace are the switches that need marks, of those that it passes or has passed.
	userspace map[openflow.DatapathID]bool
	mark, own uint8
	// yields says that its guaranteed rate does not fit, and is promised to it nowhere.
	yields bool
}

// held are the ports at which the class has a queue. The lock is held.
func (e *entry) held() []place {
	ports := slices.Concat(portsOf(e.routes), e.carriage.held(), e.leaving)
	slices.SortFunc(ports, place.Compare)
	return slices.Compact(ports)
}

// ports are those by which it leaves switches, by itself or carried. The lock is held.
func (e *entry) ports() []place {
	ports := append(portsOf(e.routes), e.carriage.held()...)
	slices.SortFunc(ports, place.Compare)
	return slices.Compact(ports)
}

// newEntry is a class that is not in the switches yet.
func newEntry(class Class, queue uint32) *entry {
	e := &entry{
		class: class, queue: queue, state: StateDegraded, reason: "it is being placed",
		placement: placement{userspace: map[openflow.DatapathID]bool{}}, withdraw: func(error) {}, done: make(chan struct{}),
		samples: map[place]*sample{}, overlaps: map[string]overlap{},
	}
	close(e.done)
	return e
}

// record is what the store keeps of where a class is in the switches: enough to have it
// there again at once after a restart, before the network has been discovered.
type record struct {
	Spec      ClassSpec             `json:"spec"`
	Queue     uint32                `json:"queue"`
	Mark      uint8                 `json:"mark"`
	Routes    []Route               `json:"routes"`
	Userspace []openflow.DatapathID `json:"userspace"`
	Accepted  time.Time             `json:"accepted"`
	// Carried are the ports at which it has its queue for connections that are carried,
	// Between those of them that are between two carriers, where they bear DSCP.
	Carried []place `json:"carried,omitempty"`
	Between []place `json:"between,omitempty"`
	DSCP    uint8   `json:"dscp,omitempty"`
}

const placementPrefix = "qos/placement/"

func storeKey(name string) string { return placementPrefix + name }
func ruleKey(name string) string  { return "class/" + name }

// save stores where a class is.
func (s *Service) save(ctx context.Context, e *entry) error {
	s.mu.Lock()
	r := record{Spec: e.class.Spec, Queue: e.queue, Mark: e.mark, Routes: e.routes, Accepted: e.accepted, DSCP: e.carriage.dscp}
	for _, at := range e.carriage.held() {
		r.Carried = append(r.Carried, at)
		if e.carriage.ports[at].between {
			r.Between = append(r.Between, at)
		}
	}
	for d, is := range e.userspace {
		if is {
			r.Userspace = append(r.Userspace, d)
		}
	}
	s.mu.Unlock()
	return store.PutJSON(ctx, s.store, storeKey(e.class.Name), r)
}

// load has in the switches again what was there before a restart. They have it all still;
// what nobody declares is removed from them.
func (s *Service) load(ctx context.Context) error {
	if err := s.Declared.Load(ctx, s.fixed); err != nil {
		return err
	}
	stored, err := s.store.List(ctx, placementPrefix)
	if err != nil {
		return err
	}
	placed := map[string]*record{}
	for _, x := range stored {
		name, r := x.Key[len(placementPrefix):], &record{}
		if err := json.Unmarshal(x.Value, r); err != nil {
			s.log.Error("where a class was cannot be read: it is placed anew", "class", name, "error", err)
		}
		placed[name] = r
	}
	for _, x := range s.Declared.Items() {
		r := placed[x.Name]
		delete(placed, x.Name)
		if r == nil || !reflect.DeepEqual(r.Spec, x.Value.Spec) {
			s.classes[x.Name] = newEntry(*x.Value, s.freeQueue())
			continue
		}
		if err := s.restore(ctx, x.Value, r); err != nil {
			s.log.Error("a class of the store", "class", x.Name, "error", err)
		}
	}
	s.mu.Lock()
	for name := range placed {
		s.left[name] = true
	}
	s.reindex()
	s.mu.Unlock()
	s.rules.Ready()
	return nil
}

func (s *Service) restore(ctx context.Context, class *Class, r *record) error {
	e := newEntry(*class, r.Queue)
	e.mark, e.routes, e.accepted, e.state, e.reason = r.Mark, r.Routes, r.Accepted, StateActive, ""
	for _, d := range r.Userspace {
		e.userspace[d] = true
	}
	e.own, _ = ownDSCP(class) // it was accepted
	e.carriage = carriage{dscp: r.DSCP, asked: time.Now(), restored: len(r.Carried) > 0}
	for _, at := range r.Carried {
		e.carriage.use(network.Carried{At: at, Between: slices.Contains(r.Between, at)}, time.Now())
		e.carriage.ports[at].ready = true // its queue has stayed
	}
	s.mu.Lock()
	s.classes[class.Name] = e
	s.mu.Unlock()
	s.compare(e)
	s.restorePromise(e)
	if p := s.carriedPromise(e); len(p.Shares) > 0 {
		s.book.Restore(p)
	}
	err := s.rules.Apply(ctx, ruleKey(class.Name), program(&e.class, e.routes, e.queue, e.own, e.userspace), rule.ApplyOptions{AllowDown: true})
	if err != nil { // it is placed anew
		s.mu.Lock()
		e.state, e.reason = StateDegraded, err.Error()
		s.mu.Unlock()
	}
	return err
}

// erase forgets where a class was.
func (s *Service) erase(ctx context.Context, name string) error {
	err := s.store.Delete(ctx, storeKey(name))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// removeLeft tries again to remove what is left of classes that are not there any more.
func (s *Service) removeLeft(ctx context.Context) {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.left))
	s.mu.Unlock()
	for _, name := range names {
		bounded, cancel := context.WithTimeout(ctx, undoTimeout)
		err := errors.Join(s.erase(bounded, name), s.rules.Remove(bounded, ruleKey(name)))
		cancel()
		if err == nil {
			s.mu.Lock()
			delete(s.left, name)
			s.mu.Unlock()
		}
	}
}

// restorePromise enters a class into the book again. A default rate is a share of a
// capacity: where that is not known yet, completePromises enters it later.
func (s *Service) restorePromise(e *entry) {
	s.mu.Lock()
	yields := e.yields
	s.mu.Unlock()
	if yields {
		s.book.Release(bookKey(e.class.Name))
		return
	}
	p := reserve.Promise{Key: bookKey(e.class.Name), Enforced: true}
	unbooked := false
	for _, at := range portsOf(e.routes) {
		capacity := s.net.Capacity(at)
		unbooked = unbooked || capacity == 0 && e.class.MinRate == 0
		p.Shares = append(p.Shares, reserve.Share{Link: at, Rate: s.ratesAt(&e.class, capacity).min})
	}
	s.book.Restore(p)
	s.mu.Lock()
	e.unbooked = unbooked
	s.mu.Unlock()
}

// completePromises enters default rates of restored classes as capacities become known.
func (s *Service) completePromises() {
	s.mu.Lock()
	var unbooked []*entry
	for _, e := range s.sortedClasses() {
		if e.unbooked {
			unbooked = append(unbooked, e)
		}
	}
	s.mu.Unlock()
	for _, e := range unbooked {
		e.work.Lock()
		if s.has(e) {
			s.restorePromise(e)
		}
		e.work.Unlock()
	}
}

// has reports whether a class has not been removed.
func (s *Service) has(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.classes[e.class.Name] == e
}
