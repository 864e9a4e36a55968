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

// Limits limits the requests of one address per second; a tenth of each may come at once.
type Limits struct {
	// Lookups and Writes limit the requests of each kind. A write costs the server as much time as
	// twenty lookups, most of it for the signature.
	Lookups, Writes float64
	// NewNames limits the writes of names without a record. A new name stays for a day, so one
	// address may only use a part of the store.
	NewNames float64
}

// DefaultLimits returns the default limits.
func DefaultLimits() Limits { return Limits{Lookups: 20_000, Writes: 1_000, NewNames: 20} }

const (
	// writesPerProcessor limits the writes of all addresses per second and processor, so that
	// signature checks leave time for lookups.
	writesPerProcessor = 15_000
	// unprovenShare is the divisor for the part of the server's resources that all requests without
	// a valid cookie, whose source addresses may be forged, may use together.
	unprovenShare = 4
)

const (
	// forwardsPerAddress limits the lookups of one address that are forwarded to other domains, per
	// second, because for each of them the other domains remember for half a minute whom to notify.
	// A client address may send Limits.Lookups; another domain may send domainFactor times as many.
	forwardsPerAddress, domainFactor = 500, 5
	// maxSources limits the addresses with limiters of their own; further addresses share those of
	// one.
	maxSources = 1 << 16
	// forgetSource is how long the limiters of an unused address are kept.
	forgetSource = 2 * time.Second
	// domainWritesShared is the divisor for the part of the other domains' writes that any of them
	// may use. Each of them has an equal share of the rest, so that one domain cannot keep the
	// others from replicating their names.
	domainWritesShared = 2
)

// source is the sender of a request: its address, and whether the request has proven with a cookie
// that the sender receives datagrams there. Otherwise the address may be forged.
type source struct {
	addr   netip.Addr
	proven bool
}

// sourceLimits limits the requests of each address. Requests that have proven their address have
// limits of their own, so that others with the same address, or with any number of addresses, take
// nothing from them.
type sourceLimits struct {
	Limits
	domains          int // the number of other domains
	mu               sync.Mutex
	proven, unproven sourceTable
	byDomain         map[netip.Addr]*domainLimiters // by the addresses of other domains
	domainWrites     *rate.Limiter                  // of any other domain beyond its share
	latest           time.Time                      // the latest time of any call
}

// sourceTable holds the limiters of addresses.
type sourceTable struct {
	bySource sources.Table[netip.Addr, limiters]
	overflow *limiters     // for addresses beyond maxSources
	writes   *rate.Limiter // of all addresses
}

type limiters struct{ lookups, writes, newNames, forwards *rate.Limiter }

// domainLimiters limits the lookups of another domain, and its share of the writes.
type domainLimiters struct{ lookups, writes *rate.Limiter }

// newSourceLimits returns the limits of a server with a number of other domains.
func newSourceLimits(l Limits, domains int) *sourceLimits {
	writes := writesPerProcessor * float64(runtime.GOMAXPROCS(0))
	s := &sourceLimits{Limits: l, domains: domains, byDomain: map[netip.Addr]*domainLimiters{}, domainWrites: limiter(writes / 2 / domainWritesShared)}
	table := func(writes float64) sourceTable {
		return sourceTable{
			bySource: sources.Table[netip.Addr, limiters]{New: s.newLimiters, Most: maxSources, ForgetAfter: forgetSource},
			overflow: s.newLimiters(), writes: limiter(writes),
		}
	}
	s.proven, s.unproven = table(writes), table(writes/unprovenShare)
	return s
}

// domain returns the limiters of another domain. Domains are few and configured, so they do not
// share the table with addresses that anybody may use. The mutex is held.
func (s *sourceLimits) domain(a netip.Addr) *domainLimiters {
	x := s.byDomain[a]
	if x == nil {
		rest := writesPerProcessor * float64(runtime.GOMAXPROCS(0)) / 2 * (1 - 1.0/domainWritesShared)
		x = &domainLimiters{lookups: limiter(domainFactor * s.Lookups), writes: limiter(rest / float64(s.domains))}
		s.byDomain[a] = x
	}
	return x
}

func limiter(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(int(perSecond/10), 1))
}

func (s *sourceLimits) newLimiters() *limiters {
	return &limiters{
		lookups: limiter(s.Lookups), writes: limiter(s.Writes), newNames: limiter(s.NewNames),
		forwards: rate.NewLimiter(forwardsPerAddress, maxQuestionsPerSource),
	}
}

// use is the kind of an action that is limited.
type use int

const (
	useLookup       use = iota
	useWrite            // before the signature check
	useNewName          // in addition to useWrite, for a proven source
	useForward          // in addition to useLookup, for a forwarded lookup
	useDomainLookup     // a lookup by another domain, whose address this is
	useDomainWrite      // a write by another domain, whose address this is
)

// allow reports whether a source may perform one more action.
func (s *sourceLimits) allow(from source, what use, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.latest) {
		s.latest = now
	}
	now = s.latest // with an earlier time the limiters would add the tokens of the time between again
	switch what {
	case useDomainLookup:
		return s.domain(from.addr.Unmap()).lookups.AllowN(now, 1)
	case useDomainWrite:
		return s.domain(from.addr.Unmap()).writes.AllowN(now, 1) || s.domainWrites.AllowN(now, 1)
	}
	table := &s.unproven
	if from.proven {
		table = &s.proven
	}
	x := cmp.Or(table.bySource.Find(clientaddr.Source(from.addr).Addr(), now), table.overflow)
	switch what {
	case useWrite:
		return x.writes.AllowN(now, 1) && table.writes.AllowN(now, 1)
	case useForward:
		return x.forwards.AllowN(now, 1)
	case useNewName:
		return x.newNames.AllowN(now, 1)
	default:
		return x.lookups.AllowN(now, 1)
	}
}

// room returns how many requests may wait when one of a source comes: half of the maximum if the
// source has not proven its address.
func room(most int, from source) int {
	if from.proven {
		return most
	}
	return most / 2
}
