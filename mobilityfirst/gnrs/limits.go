package gnrs

import (
	"net/netip"
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
}

// DefaultLimits are those of a server that is told nothing.
func DefaultLimits() Limits { return Limits{Lookups: 20_000, Writes: 1_000} }

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
	swept  time.Time
}

type source struct {
	lookups, writes *rate.Limiter
	last            time.Time
}

func newSources(l Limits) *sources {
	s := &sources{Limits: l, of: map[netip.Addr]*source{}}
	s.others = s.source()
	return s
}

func (s *sources) source() *source {
	limiter := func(each float64) *rate.Limiter { return rate.NewLimiter(rate.Limit(each), max(int(each/10), 1)) }
	return &source{lookups: limiter(s.Lookups), writes: limiter(s.Writes)}
}

// allow says whether an address may ask, or write, once more.
func (s *sources) allow(a netip.Addr, writes bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.find(clientaddr.Source(a).Addr(), now)
	if writes {
		return x.writes.AllowN(now, 1)
	}
	return x.lookups.AllowN(now, 1)
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
