package host

import (
	"cmp"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/sources"
)

// These constants limit, per second, the signature checks and answers that other hosts may cause. At
// the limits they cost about a fifth of a processor. There are four kinds of places: near or far, and
// with or without a known name. Each kind has the same limits of its own.
const (
	signaturesPerPlace, signaturesPerKind = 50, 500
	answersPerPlace, answersPerKind       = 200, 2000
	// maxRequests limits the requests for paths that the host broadcasts per second,
	// maxInducedRequests those of them that messages of others cause, and maxLabelledRequests the
	// requests that it sends by labels.
	maxRequests, maxInducedRequests, maxLabelledRequests = 500, 100, 500
	// maxSources limits the places of each kind that have limiters of their own; further places of
	// the kind share those of one place.
	maxSources = 1024
	// forgetSource is how long the limiters of an unused place are kept.
	forgetSource = 2 * time.Second
)

// limits limits the work that each place may cause. A place is a link and an Ethernet address, or a
// far host's IPv4 address.
type limits struct {
	// unknown holds the places at which no name is known, and known all others. farUnknown and
	// farKnown hold the places of far hosts, which are on none of the host's links, in the same
	// way.
	unknown, known, farUnknown, farKnown places
	requests, induced, labelled          *rate.Limiter
}

// places holds the limiters of the places of one kind.
type places struct {
	byPlace       sources.Table[place, limiters]
	overflow, all *limiters
}

type limiters struct{ signatures, answers *rate.Limiter }

func newLimiters(signatures, answers int) *limiters {
	return &limiters{signatures: rate.NewLimiter(rate.Limit(signatures), signatures), answers: rate.NewLimiter(rate.Limit(answers), answers)}
}

func (l *limits) init() {
	l.unknown.init()
	l.known.init()
	l.farUnknown.init()
	l.farKnown.init()
	l.requests, l.induced = rate.NewLimiter(maxRequests, maxRequests), rate.NewLimiter(maxInducedRequests, maxInducedRequests)
	l.labelled = rate.NewLimiter(maxLabelledRequests, maxLabelledRequests)
}

func (p *places) init() {
	one := func() *limiters { return newLimiters(signaturesPerPlace, answersPerPlace) }
	p.byPlace = sources.Table[place, limiters]{New: one, Most: maxSources, ForgetAfter: forgetSource}
	p.overflow, p.all = one(), newLimiters(signaturesPerKind, answersPerKind)
}

// allowSignature reports whether one more signature from a place may be checked. solicited is set
// for an answer to a request of the host.
func (h *Host) allowSignature(at place, solicited bool, now time.Time) bool {
	one, all := h.limits.find(at, solicited || h.neighbours.knows(at), now)
	return one.signatures.AllowN(now, 1) && all.signatures.AllowN(now, 1)
}

// allowAnswer reports whether the host may send a place one more answer.
func (h *Host) allowAnswer(at place, now time.Time) bool {
	one, all := h.limits.find(at, h.neighbours.knows(at), now)
	return one.answers.AllowN(now, 1) && all.answers.AllowN(now, 1)
}

// find returns the limiters of a place, and those of all places of its kind.
func (l *limits) find(at place, known bool, now time.Time) (one, all *limiters) {
	kind := &l.unknown
	switch far := at.link.isFar(); {
	case far && known:
		kind = &l.farKnown
	case far:
		kind = &l.farUnknown
	case known:
		kind = &l.known
	}
	return cmp.Or(kind.byPlace.Find(at.source(), now), kind.overflow), kind.all
}
