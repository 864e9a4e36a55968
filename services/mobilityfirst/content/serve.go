package content

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// maxActive limits the requests of one name that are served at one time; before the name has
	// taken a piece, one request is served at a time. maxWaiting limits its requests that wait:
	// further requests are dropped, so that the requester repeats them. maxRequesters limits the
	// names.
	maxActive, maxWaiting, maxRequesters = 4, 32, 1024
	// maxInFlight limits the pieces in flight to all names that have taken a piece within
	// provenLifetime, and separately those to all other names. The rest of hostapi.MaxUnderway is
	// for answers without a piece.
	maxInFlight, provenLifetime = hostapi.MaxUnderway / 16 * 7 / (PieceSize + hostapi.Overhead), 5 * time.Minute
)

// requester is a name that has requested pieces. Peer.mu guards it.
type requester struct {
	waiting []waitingRequest
	active  []uint64 // the numbers of the requests that are being served
	// maxActive is the current limit of active: it starts at one, and increases by one for each
	// piece that is taken.
	maxActive   int
	answered    bool      // it has taken an answer
	lastTaken   time.Time // when it last took a piece
	lastRequest time.Time // when it last sent a request
}

// waitingRequest is a request that waits.
type waitingRequest struct {
	request
	since time.Time
}

// serving serves pieces to others. A name may have one more request served at one time for each
// piece that it takes, so a name that takes nothing costs little.
type serving struct {
	requesters       map[frame.GUID]*requester
	proven, unproven *adaptiveLimit
}

func newServing() serving {
	return serving{map[frame.GUID]*requester{}, newAdaptiveLimit(minLimit, maxInFlight), newAdaptiveLimit(maxInFlight, maxInFlight)}
}

// request queues a request.
func (p *Peer) request(work *tasks.Group, x hostapi.Chunk) error {
	r, err := parseRequest(x.Payload)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.requesters[x.From]
	switch {
	case p.Source == nil:
		return fmt.Errorf("request for content %v: %w", r.Content, ErrAbsent)
	case a == nil && len(p.requesters) >= maxRequesters && !p.evict():
		return errors.New("too many names request pieces")
	case a == nil:
		a = &requester{maxActive: 1}
		p.requesters[x.From] = a
	}
	a.lastRequest = time.Now()
	if i := slices.IndexFunc(a.waiting, func(w waitingRequest) bool { return w.Number == r.Number }); i >= 0 {
		a.waiting[i].since = a.lastRequest // the request was repeated
		return nil
	}
	if slices.Contains(a.active, r.Number) {
		return nil
	}
	if len(a.waiting) >= maxWaiting {
		return errors.New("too many requests of the name are waiting")
	}
	a.waiting = append(a.waiting, waitingRequest{r, a.lastRequest})
	p.startRequests(work, x.From, a)
	return nil
}

// evict removes one of the names whose requests are not being served, the one with the oldest
// request, and reports whether there was one. p.mu is held.
func (p *Peer) evict() bool {
	var oldest frame.GUID
	var since time.Time
	for name, a := range p.requesters {
		if len(a.active) == 0 && (since.IsZero() || a.lastRequest.Before(since)) {
			oldest, since = name, a.lastRequest
		}
	}
	delete(p.requesters, oldest)
	return !since.IsZero()
}

// startRequests serves as many requests of a name as allowed at one time. It skips requests whose
// requester no longer waits. p.mu is held.
func (p *Peer) startRequests(work *tasks.Group, name frame.GUID, a *requester) {
	for len(a.active) < a.maxActive && len(a.waiting) > 0 {
		r := a.waiting[0]
		a.waiting = a.waiting[1:]
		if time.Since(r.since) > hostapi.ContentWithin {
			continue
		}
		heard := a.answered
		if !work.Start(func(ctx context.Context) { p.serve(ctx, work, name, a, r.request, heard) }) {
			return
		}
		a.active = append(a.active, r.active(heard))
	}
}

// active returns the number under which a request is listed in requester.active. It is zero if the
// answer will be verdictRetry: the requester may repeat the request before this peer learns that
// the answer was taken, and the repeated request must not count as already active.
func (r *request) active(heard bool) uint64 {
	if heard {
		return r.Number
	}
	return 0
}

// serve serves a request, and then continues with the next. heard is set if the requester has taken
// an answer before.
func (p *Peer) serve(ctx context.Context, work *tasks.Group, name frame.GUID, a *requester, r request, heard bool) {
	p.mu.Lock()
	takes := time.Since(a.lastTaken) < provenLifetime
	p.mu.Unlock()
	var missing, failed error
	verdict := verdictRetry
	if heard {
		verdict, missing, failed = p.give(ctx, name, r, takes)
	} else {
		failed = p.send(ctx, name, response{Number: r.Number, Verdict: verdictRetry})
	}
	if err := errors.Join(missing, failed); err != nil && ctx.Err() == nil {
		p.warnLimit.Warn(p.Log, "a piece was not given", "to", name, "content", r.Content, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(a.active, r.active(heard))
	a.active = slices.Delete(a.active, i, i+1)
	switch {
	case failed != nil:
		a.answered, a.lastTaken, a.maxActive = false, time.Time{}, 1
	case verdict == verdictGiven:
		a.answered, a.lastTaken, a.maxActive = true, time.Now(), min(a.maxActive+1, maxActive)
	default:
		a.answered = true
	}
	p.startRequests(work, name, a)
}

// give sends a piece. If the piece is missing, give answers with verdictAbsent and returns the
// reason in missing. failed is the error of sending the answer.
func (p *Peer) give(ctx context.Context, name frame.GUID, r request, takes bool) (v verdict, missing, failed error) {
	size, missing := p.Source.Prepare(ctx, r.Content, r.Piece)
	if missing != nil {
		return verdictAbsent, missing, p.send(ctx, name, response{Number: r.Number, Verdict: verdictAbsent})
	}
	pool := p.unproven
	if takes {
		pool = p.proven
	}
	limited, cancel := context.WithTimeout(ctx, hostapi.ContentWithin)
	defer cancel()
	if pool.acquire(limited) != nil {
		return verdictAbsent, errors.New("too many pieces for others are in flight"), nil // the requester no longer waits
	}
	taken := false
	defer func() { pool.release(taken) }()
	b, missing := p.Source.Read(r.Content, r.Piece)
	if missing == nil && (len(b) > size || len(b) > PieceSize) {
		missing = fmt.Errorf("%d bytes instead of %d: %w", len(b), size, ErrWrong)
	}
	if missing != nil {
		return verdictAbsent, missing, p.send(ctx, name, response{Number: r.Number, Verdict: verdictAbsent})
	}
	failed = p.send(ctx, name, response{Number: r.Number, Verdict: verdictGiven, Data: b})
	switch taken = failed == nil; {
	case taken:
	case takes:
		p.proven.halve()
		p.unproven.halve()
	default: // a name that has taken nothing yet may never do so
		p.unproven.decrease()
	}
	return verdictGiven, nil, failed
}

// send sends a response, and waits until it is taken over.
func (p *Peer) send(ctx context.Context, to frame.GUID, r response) error {
	done := make(chan error, 1)
	if err := p.Host.Send(ctx, to, frame.ContentResponse, r.appendTo(nil), func(err error) { done <- err }); err != nil {
		return err
	}
	return <-done // this also returns when the host ends
}
