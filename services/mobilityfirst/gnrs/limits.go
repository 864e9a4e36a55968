package gnrs

import (
	"cmp"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/internal/sources"
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
	// asksOthersEach is how many questions of one address others are asked for in a second: each has them remember for half a
	// minute who is to be told. domainsShare is how many times as much another domain may ask as an address.
	asksOthersEach, domainsShare = 500, 5
	// maxSources bounds the addresses that are remembered; more share what one may do.
	maxSources = 1 << 16
	// forgetAfter is when nothing needs to be remembered of an address.
	forgetAfter = 2 * time.Second
)

// askers counts what each address does.
type askers struct {
	Limits
	mu              sync.Mutex
	of              sources.Table[netip.Addr, source]
	others          *source       // who has found no room
	writes, brought *rate.Limiter // in all, of owners and of other domains
	now             time.Time     // the latest that anybody has come with
}

type source struct{ lookups, writes, news, others, domain *rate.Limiter }

func newAskers(l Limits) *askers {
	s := &askers{Limits: l, writes: limiter(writesInAll * float64(runtime.GOMAXPROCS(0)))}
	s.brought = limiter(writesInAll / 2 * float64(runtime.GOMAXPROCS(0)))
	s.of = sources.Table[netip.Addr, source]{New: s.source, Most: maxSources, ForgetAfter: forgetAfter}
	s.others = s.source()
	return s
}

func limiter(each float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(each), max(int(each/10), 1))
}

func (s *askers) source() *source {
	return &source{
		lookups: limiter(s.Lookups), writes: limiter(s.Writes), news: limiter(s.NewNames),
		others: rate.NewLimiter(asksOthersEach, maxFrom), domain: limiter(domainsShare * s.Lookups),
	}
}

// use is what somebody does.
type use int

const (
	asks         use = iota
	writes           // before a signature is looked at
	newNames         // beside writes
	asksOthers       // beside asks: what others have to be asked
	othersAsks       // those of another domain
	othersWrites     // likewise
)

// allow says whether an address may do something once more.
func (s *askers) allow(a netip.Addr, what use, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.now) {
		s.now = now
	}
	now = s.now // whoever comes later with an earlier time would have the time between count again
	x := cmp.Or(s.of.Find(clientaddr.Source(a).Addr(), now), s.others)
	switch what {
	case writes:
		return x.writes.AllowN(now, 1) && s.writes.AllowN(now, 1)
	case asksOthers:
		return x.others.AllowN(now, 1)
	case othersAsks:
		return x.domain.AllowN(now, 1)
	case othersWrites:
		return s.brought.AllowN(now, 1)
	case newNames:
		return x.news.AllowN(now, 1)
	default:
		return x.lookups.AllowN(now, 1)
	}
}
