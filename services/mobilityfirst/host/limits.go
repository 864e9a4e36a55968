package host

import (
	"cmp"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/sources"
)

// What others may have the host do in a second: to look at signatures, and to answer. Those of all
// together are some fifth of a processor, a quarter of it each for who is known already and for who is not, near and far.
const (
	signaturesEach, signaturesHalf = 50, 500
	answersEach, answersHalf       = 200, 2000
	// asksAll is how often the host itself asks for ways, asksInduced how often of that because of
	// what others say.
	asksAll, asksInduced = 500, 100
	// maxSources bounds the places that are counted of each kind; more of a kind share what one may do.
	maxSources = 1024
	// forgetSource is when nothing needs to be remembered of a place.
	forgetSource = 2 * time.Second
)

// limits count what each place, by its link and Ethernet address, or a far host's IPv4 address, has the host do.
type limits struct {
	// strangers are the places from which no name is known, known all others; farStrangers and farKnown those that
	// are on none of the host's links.
	strangers, known, farStrangers, farKnown places
	asks, induced                            *rate.Limiter
}

// places are of one kind.
type places struct {
	of          sources.Table[place, source]
	others, all *source
}

type source struct{ signatures, answers *rate.Limiter }

func newSource(signatures, answers int) *source {
	return &source{signatures: rate.NewLimiter(rate.Limit(signatures), signatures), answers: rate.NewLimiter(rate.Limit(answers), answers)}
}

func (l *limits) init() {
	l.strangers.init()
	l.known.init()
	l.farStrangers.init()
	l.farKnown.init()
	l.asks, l.induced = rate.NewLimiter(asksAll, asksAll), rate.NewLimiter(asksInduced, asksInduced)
}

func (p *places) init() {
	one := func() *source { return newSource(signaturesEach, answersEach) }
	p.of = sources.Table[place, source]{New: one, Most: maxSources, ForgetAfter: forgetSource}
	p.others, p.all = one(), newSource(signaturesHalf, answersHalf)
}

// mayVerify says whether one more signature that comes from a place is looked at: asked is for an answer to
// the host.
func (h *Host) mayVerify(at place, asked bool, now time.Time) bool {
	one, all := h.limits.find(at, asked || h.neighbours.knows(at), now)
	return one.signatures.AllowN(now, 1) && all.signatures.AllowN(now, 1)
}

// mayAnswer says whether a place is answered once more.
func (h *Host) mayAnswer(at place, now time.Time) bool {
	one, all := h.limits.find(at, h.neighbours.knows(at), now)
	return one.answers.AllowN(now, 1) && all.answers.AllowN(now, 1)
}

// find is what is counted of a place, and of all of its kind.
func (l *limits) find(at place, known bool, now time.Time) (one, all *source) {
	kind := &l.strangers
	switch far := at.link.isFar(); {
	case far && known:
		kind = &l.farKnown
	case far:
		kind = &l.farStrangers
	case known:
		kind = &l.known
	}
	return cmp.Or(kind.of.Find(at.source(), now), kind.others), kind.all
}
