package gnrs

import (
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/clientaddr"
)

// Limits is what one address may do in a second; each may do a tenth of it at once.
type Limits struct {
	// Lookups and Writes are questions and writes. A write costs the server as much time as twenty
	// questions, most of it for the signature.
	Lookups, Writes float64
	// NewNames are writes of names that are not there yet. They stay for a day: what one address may
	// do is a part of what a store takes.
	NewNames float64
}

// DefaultLimits are those of a server that is told nothing.
func DefaultLimits() Limits { return Limits{Lookups: 20_000, Writes: 1_000, NewNames: 20} }

// writesInAll is how many writes of all together a server takes in a second for each processor: so
// signatures leave it time for questions.
const writesInAll = 15_000

const (
	// maxSources bounds the addresses that are remembered; more share what one may do.
	maxSources = 1 << 16
	// forgetAfter is when nothing needs to be remembered of an address.
	forgetAfter = 2 * time.Second
)

// sources counts what each address does.
type sources struct {
	Limits
	mu     sync.Mutex
	of     map[netip.Addr]*source
	others *source // who has found no room
	writes *rate.Limiter
	swept  time.Time
	now    time.Time // the latest that anybody has come with
}

type source struct {
	lookups, writes, news *rate.Limiter
	last                  time.Time
}

func newSources(l Limits) *sources {
	s := &sources{Limits: l, of: map[netip.Addr]*source{}, writes: limiter(writesInAll * float64(runtime.GOMAXPROCS(0)))}
	s.others = s.source()
	return s
}

func limiter(each float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(each), max(int(each/10), 1))
}

func (s *sources) source() *source {
	return &source{lookups: limiter(s.Lookups), writes: limiter(s.Writes), news: limiter(s.NewNames)}
}

// use is what somebody does.
type use int

const (
	asks     use = iota
	writes       // before a signature is looked at
	newNames     // beside writes
)

// allow says whether an address may do something once more.
func (s *sources) allow(a netip.Addr, what use, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.now) {
		s.now = now
	}
	now = s.now // whoever comes later with an earlier time would have the time between count again
	x := s.find(clientaddr.Source(a).Addr(), now)
	switch what {
	case writes:
		return x.writes.AllowN(now, 1) && s.writes.AllowN(now, 1)
	case newNames:
		return x.news.AllowN(now, 1)
	default:
		return x.lookups.AllowN(now, 1)
	}
}

func (s *sources) find(a netip.Addr, now time.Time) *source {
	x := s.of[a]
	if x == nil {
		if s.sweep(now); len(s.of) >= maxSources {
			return s.others
		}
		x = s.source()
		s.of[a] = x
	}
	x.last = now
	return x
}

// sweep forgets who does nothing, once a second at most.
func (s *sources) sweep(now time.Time) {
	if now.Sub(s.swept) < time.Second {
		return
	}
	s.swept = now
	for a, x := range s.of {
		if now.Sub(x.last) > forgetAfter {
			delete(s.of, a)
		}
	}
}
