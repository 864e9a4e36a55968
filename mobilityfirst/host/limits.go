package host

import (
	"time"

	"golang.org/x/time/rate"
)

// What others may have the host do in a second: to look at signatures, and to answer. Those of all
// together are some tenth of a processor, half of it for who is known already.
const (
	signaturesEach, signaturesHalf = 50, 500
	answersEach, answersHalf       = 200, 2000
	// asksAll is how often the host itself asks for ways, asksInduced how often of that because of
	// what others say.
	asksAll, asksInduced = 500, 100
	// maxSources bounds the places that are counted beside known ones; more share what one may do.
	maxSources = 1024
	// forgetSource is when nothing needs to be remembered of a place.
	forgetSource = 2 * time.Second
)

// limits count what each place, by its link and Ethernet address, has the host do.
type limits struct {
	of     map[place]*source
	others source
	// strangers are all places from which no name is known, known all others.
	strangers, known source
	asks, induced    *rate.Limiter
	swept            time.Time
}

type source struct {
	signatures, answers *rate.Limiter
	last                time.Time
}

func newSource(signatures, answers int) source {
	return source{signatures: rate.NewLimiter(rate.Limit(signatures), signatures), answers: rate.NewLimiter(rate.Limit(answers), answers)}
}

func (l *limits) init() {
	l.of = map[place]*source{}
	l.others = newSource(signaturesEach, answersEach)
	l.strangers, l.known = newSource(signaturesHalf, answersHalf), newSource(signaturesHalf, answersHalf)
	l.asks, l.induced = rate.NewLimiter(asksAll, asksAll), rate.NewLimiter(asksInduced, asksInduced)
}

// mayVerify says whether one more signature that comes from a place is looked at: asked is for an answer to
// the host.
func (h *Host) mayVerify(at place, asked bool, now time.Time) bool {
	known := asked || h.neighbours.knows(at)
	return h.limits.find(at, known, now).signatures.AllowN(now, 1) && h.limits.all(known).signatures.AllowN(now, 1)
}

// mayAnswer says whether a place is answered once more.
func (h *Host) mayAnswer(at place, now time.Time) bool {
	known := h.neighbours.knows(at)
	return h.limits.find(at, known, now).answers.AllowN(now, 1) && h.limits.all(known).answers.AllowN(now, 1)
}

func (l *limits) all(known bool) *source {
	if known {
		return &l.known
	}
	return &l.strangers
}

func (l *limits) find(at place, known bool, now time.Time) *source {
	x := l.of[at]
	if x == nil {
		if l.sweep(now); len(l.of) >= maxSources && !known {
			return &l.others
		}
		s := newSource(signaturesEach, answersEach)
		x = &s
		l.of[at] = x
	}
	x.last = now
	return x
}

// sweep forgets who does nothing, once a second at most.
func (l *limits) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for at, x := range l.of {
		if now.Sub(x.last) > forgetSource {
			delete(l.of, at)
		}
	}
}
