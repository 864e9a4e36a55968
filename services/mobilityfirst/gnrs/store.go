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

// Store holds the newest record of each name; packages namestore and redisnames implement it. Its
// methods may be called concurrently. Errors wrap those of package record.
type Store interface {
	// Get appends the record of a name to b, as record.Parse reads it, and reports whether there is
	// one. The record may have expired.
	Get(b []byte, name frame.GUID) (all []byte, found bool, err error)
	// Start begins to store a verified record. If it returns nil, it later calls done once: with
	// nil when the record is durable, or with the reason why it is not stored. changed reports
	// whether the stored record has changed, or may have. done must not block. The record's memory
	// belongs to the store until done is called.
	Start(r *record.Record, done func(changed bool, err error)) error
}

// Shared is a Store that other servers use as well. It is reached over a network, so its methods
// may take time.
type Shared interface {
	Store
	// Changed registers f, which is called with names whose records other servers have changed. f
	// must not block. Changed is called once, before all other methods.
	Changed(f func(frame.GUID))
	// Hears reports whether the store now learns of other servers' changes, so that f is called
	// with them. f is never called with a change that was made while Hears returned false.
	Hears() bool
}

const (
	// These constants limit the requests that wait for a shared store, in total and per source.
	// Sources that have not proven their address leave half of the total to others.
	maxWaiting, maxWaitingPerSource = 8192, 1024
)

// storeQueue executes requests that wait for a shared store, so that the server can read further
// requests meanwhile.
type storeQueue struct {
	*Server
	tasks *tasks.Group

	mu        sync.Mutex
	total     int
	perSource map[netip.Addr]int
}

func newStoreQueue(s *Server) *storeQueue {
	return &storeQueue{Server: s, tasks: tasks.New(), perSource: map[netip.Addr]int{}}
}

// start runs f for a request in another goroutine, and sends the answer unless f reports that it
// still has to wait. start reports whether there was room for the request.
func (s *storeQueue) start(from source, to netip.AddrPort, a *gnrswire.Message, f func(now time.Time) (code Code, waits bool)) bool {
	at := clientaddr.Source(from.addr).Addr()
	if !s.acquire(at, room(maxWaiting, from)) {
		return false
	}
	cloneRequester(a)
	started := s.tasks.Start(func(context.Context) { // the store limits its duration
		code, waits := f(time.Now())
		s.release(at)
		if !waits {
			s.setCode(a, code)
			s.sendLater(s.delayed, to, a)
		}
	})
	if !started {
		s.release(at)
	}
	return started
}

// acquire takes room for one request of a source unless most requests wait already, and reports
// whether there was any.
func (s *storeQueue) acquire(source netip.Addr, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= most || s.perSource[source] >= maxWaitingPerSource {
		return false
	}
	s.total++
	s.perSource[source]++
	return true
}

// release returns the room of a request.
func (s *storeQueue) release(source netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.perSource[source]--; s.perSource[source] == 0 {
		delete(s.perSource, source)
	}
}
