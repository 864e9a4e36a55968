package domain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

func isNotFound(err error) bool { return errors.Is(err, store.ErrNotFound) }

// deviceLock is held by who changes a device's record or its rules. It is never
// held while a neighbour is asked: two domains would wait for each other.
type deviceLock struct {
	held  chan struct{}
	users int
}

// lock waits for the device's lock.
func (s *Service) lock(ctx context.Context, id string) (unlock func(), err error) {
	s.mu.Lock()
	l := s.locks[id]
	if l == nil {
		l = &deviceLock{held: make(chan struct{}, 1)}
		s.locks[id] = l
	}
	l.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.locks, id)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("wait for device %s: %w", id, ctx.Err())
	}
}

// record returns a copy of the device's record, or nil.
func (s *Service) record(id string) *Record {
	r, ok := s.Record(id)
	if !ok {
		return nil
	}
	return &r
}

// recordOf returns a copy of the record of the device with the hardware address.
func (s *Service) recordOf(mac openflow.MAC) *Record {
	s.mu.Lock()
	id, ok := s.byMAC[mac]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return s.record(id)
}

// show makes the record visible, without writing it.
func (s *Service) show(r *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.records[r.ID]; old != nil {
		for _, m := range old.MACs {
			delete(s.byMAC, m)
		}
	}
	if r.settled(s.self) {
		delete(s.records, r.ID)
		return
	}
	r.Changed = s.now()
	c := r.clone()
	s.records[r.ID] = &c
	for _, m := range c.MACs {
		s.byMAC[m] = r.ID
	}
}

// put makes the record visible, writes it, and sees that what is in its outbox is
// delivered. The device's lock is held, or nobody else works yet.
func (s *Service) put(ctx context.Context, r *Record) {
	s.show(r)
	// A caller that has given up must not leave memory and store different.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timing.Request)
	defer cancel()
	if err := s.save(ctx, r); err != nil {
		s.log.Error("a record of a roaming device was not written; it would be lost by a restart", "device", r.ID, "error", err)
	}
	for _, o := range r.Outbox {
		if n := s.neighbour(o.Peer); n != nil {
			s.post(n, r.ID, o.NotBefore)
		}
	}
}

// post has what is in the outbox to the neighbour delivered when it is time.
func (s *Service) post(n *neighbour, id string, at time.Time) {
	wait := at.Sub(s.now())
	if wait <= 0 {
		n.box.add(id)
		return
	}
	// If Run has ended, Restore will find it.
	s.tasks.Start(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			n.box.add(id)
		}
	})
}

// visitorsOf counts the devices that the neighbour has here.
func (s *Service) visitorsOf(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, r := range s.records {
		if !r.Gone && r.Home != s.self && (r.Upstream == name || r.incoming(name) != nil) {
			count++
		}
	}
	return count
}

// recent remembers the latest of many names.
type recent struct {
	mu    sync.Mutex
	set   map[string]bool
	order []string
	limit int
}

func newRecent(limit int) *recent { return &recent{set: map[string]bool{}, limit: limit} }

func (r *recent) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set[name] {
		return
	}
	r.set[name] = true
	r.order = append(r.order, name)
	if len(r.order) > r.limit {
		delete(r.set, r.order[0])
		r.order = slices.Delete(r.order, 0, 1)
	}
}

func (r *recent) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set[name]
}
