package gnrs

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Store has the newest record of each name, as packages namestore and redisnames have. Its methods may be called
// concurrently. Errors wrap those of package record.
type Store interface {
	// Get appends the record of a name to b, as record.Parse reads it, and says whether there is one. It may be over.
	Get(b []byte, name frame.GUID) (all []byte, found bool, err error)
	// Start stores a record that has been verified: done is called when it will not be lost any more, or with why it is not
	// stored, and is told whether that has changed anything, or may have. done does not block. An error of Start means that done is not
	// called. The record's memory is the store's until then.
	Start(r *record.Record, done func(changed bool, err error)) error
}

// Shared is a Store that other servers have, too. It is asked over a network, so that what it does may take time.
type Shared interface {
	Store
	// Changed has f called with names of which others have written something new. f does not block. It is called once, before
	// anything else.
	Changed(f func(frame.GUID))
	// Hears says whether f is being called now: what others write while it is not is never told.
	Hears() bool
}

const (
	// What waits for a shared store at one time: in all, and from one address.
	maxWaiting, maxWaitingFrom = 8192, 1024
)

// aside does what waits for a shared store, while questions are read.
type aside struct {
	*Server
	tasks *tasks.Group

	mu   sync.Mutex
	all  int
	from map[netip.Addr]int
}

func newAside(s *Server) *aside {
	return &aside{Server: s, tasks: tasks.New(), from: map[netip.Addr]int{}}
}

// do has what an address has asked done by f, and answered unless that has to wait for more. It says whether there was room for
// that.
func (s *aside) do(from netip.Addr, to netip.AddrPort, a *gnrswire.Message, f func(now time.Time) (code Code, waits bool)) bool {
	source := clientaddr.Source(from).Addr()
	if !s.enter(source) {
		return false
	}
	keep(a)
	started := s.tasks.Start(func(context.Context) { // the store bounds how long it takes
		code, waits := f(time.Now())
		s.leave(source)
		if !waits {
			s.conclude(a, code)
			s.later(s.waited, to, a)
		}
	})
	if !started {
		s.leave(source)
	}
	return started
}

// enter says whether there is room for one thing more of an address, which it takes.
func (s *aside) enter(source netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxWaiting || s.from[source] >= maxWaitingFrom {
		return false
	}
	s.all++
	s.from[source]++
	return true
}

// leave gives room back.
func (s *aside) leave(source netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.from[source]--; s.from[source] == 0 {
		delete(s.from, source)
	}
}
