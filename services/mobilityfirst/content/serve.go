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
	// Of one name askedAtOnce requests are answered at one time, one until it has taken a piece, and maxAsked wait. More are left
	// out: who asks does so again. maxAskers is how many names there are.
	askedAtOnce, maxAsked, maxAskers = 4, 32, 1024
	// mostUnderway are under way at most to all that have taken a piece within takesFor, and as many to all others. The rest of what
	// a host takes is for answers without a piece.
	mostUnderway, takesFor = hostapi.MaxUnderway / 16 * 7 / (PieceSize + hostapi.Overhead), 5 * time.Minute
)

// asker is a name that has asked for pieces. Peer.mu guards it.
type asker struct {
	waiting []asking
	active  []uint64 // the numbers of the requests that are being answered
	// may is how many may be: one, and one more for each piece that is taken.
	may   int
	heard bool      // it has taken an answer
	taken time.Time // when it has taken a piece last
	last  time.Time // when it has asked last
}

// asking is a request that waits.
type asking struct {
	request
	since time.Time
}

// serving is what is given to others. What a name has under way grows with what it takes: so one that takes nothing costs little.
type serving struct {
	askers        map[frame.GUID]*asker
	proven, fresh *room
}

func newServing() serving {
	return serving{map[frame.GUID]*asker{}, newRoom(leastRoom, mostUnderway), newRoom(mostUnderway, mostUnderway)}
}

// request notes a request, and has it answered in its turn.
func (p *Peer) request(work *tasks.Group, x hostapi.Chunk) error {
	r, err := parseRequest(x.Payload)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.askers[x.From]
	switch {
	case p.Source == nil:
		return fmt.Errorf("request for content %v: %w", r.Content, ErrAbsent)
	case a == nil && len(p.askers) >= maxAskers && !p.forget():
		return errors.New("as many names have asked as may")
	case a == nil:
		a = &asker{may: 1}
		p.askers[x.From] = a
	}
	a.last = time.Now()
	if i := slices.IndexFunc(a.waiting, func(w asking) bool { return w.Number == r.Number }); i >= 0 {
		a.waiting[i].since = a.last // it is asked for once more
		return nil
	}
	if slices.Contains(a.active, r.Number) {
		return nil
	}
	if len(a.waiting) >= maxAsked {
		return errors.New("it has asked as often as it may")
	}
	a.waiting = append(a.waiting, asking{r, a.last})
	p.goOn(work, x.From, a)
	return nil
}

// forget forgets the name that has asked longest ago of those for which nothing is under way; false if there is none. p.mu is
// held.
func (p *Peer) forget() bool {
	var oldest frame.GUID
	var since time.Time
	for name, a := range p.askers {
		if len(a.active) == 0 && (since.IsZero() || a.last.Before(since)) {
			oldest, since = name, a.last
		}
	}
	delete(p.askers, oldest)
	return !since.IsZero()
}

// goOn answers as many requests of a name as may be at one time. One for which nobody waits any more is left out. p.mu is held.
func (p *Peer) goOn(work *tasks.Group, name frame.GUID, a *asker) {
	for len(a.active) < a.may && len(a.waiting) > 0 {
		r := a.waiting[0]
		a.waiting = a.waiting[1:]
		if time.Since(r.since) > hostapi.ContentWithin {
			continue
		}
		heard := a.heard
		if !work.Start(func(ctx context.Context) { p.serve(ctx, work, name, a, r.request, heard) }) {
			return
		}
		a.active = append(a.active, r.active(heard))
	}
}

// active is the number under which a request is known while it is answered: zero where the answer will be to ask again, which may
// be done before it is known here that the answer was taken.
func (r *request) active(heard bool) uint64 {
	if heard {
		return r.Number
	}
	return 0
}

// serve answers a request, and goes on with the next. heard says that who asks has taken an answer.
func (p *Peer) serve(ctx context.Context, work *tasks.Group, name frame.GUID, a *asker, r request, heard bool) {
	p.mu.Lock()
	takes := time.Since(a.taken) < takesFor
	p.mu.Unlock()
	var missing, failed error
	verdict := again
	if heard {
		verdict, missing, failed = p.give(ctx, name, r, takes)
	} else {
		failed = p.send(ctx, name, response{Number: r.Number, Verdict: again})
	}
	if err := errors.Join(missing, failed); err != nil && ctx.Err() == nil {
		p.strange.Warn(p.Log, "a piece was not given", "to", name, "content", r.Content, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(a.active, r.active(heard))
	a.active = slices.Delete(a.active, i, i+1)
	switch {
	case failed != nil:
		a.heard, a.taken, a.may = false, time.Time{}, 1
	case verdict == given:
		a.heard, a.taken, a.may = true, time.Now(), min(a.may+1, askedAtOnce)
	default:
		a.heard = true
	}
	p.goOn(work, name, a)
}

// give answers a request with a piece, or says why it is missing: then that is the answer. It may fail to get there.
func (p *Peer) give(ctx context.Context, name frame.GUID, r request, takes bool) (v verdict, missing, failed error) {
	size, missing := p.Source.Prepare(ctx, r.Content, r.Piece)
	if missing != nil {
		return absent, missing, p.send(ctx, name, response{Number: r.Number, Verdict: absent})
	}
	pool := p.fresh
	if takes {
		pool = p.proven
	}
	limited, cancel := context.WithTimeout(ctx, hostapi.ContentWithin)
	defer cancel()
	if pool.enter(limited) != nil {
		return absent, errors.New("others have too much under way"), nil // nobody waits for it any more
	}
	taken := false
	defer func() { pool.leave(taken) }()
	b, missing := p.Source.Read(r.Content, r.Piece)
	if missing == nil && (len(b) > size || len(b) > PieceSize) {
		missing = fmt.Errorf("%d bytes instead of %d: %w", len(b), size, ErrWrong)
	}
	if missing != nil {
		return absent, missing, p.send(ctx, name, response{Number: r.Number, Verdict: absent})
	}
	failed = p.send(ctx, name, response{Number: r.Number, Verdict: given, Data: b})
	switch taken = failed == nil; {
	case taken:
	case takes:
		p.proven.halve()
		p.fresh.halve()
	default: // one that has taken nothing yet may never
		p.fresh.decrease()
	}
	return given, nil, failed
}

// send sends a response, and waits until it is taken.
func (p *Peer) send(ctx context.Context, to frame.GUID, r response) error {
	done := make(chan error, 1)
	if err := p.Host.Send(ctx, to, frame.ContentResponse, r.appendTo(nil), func(err error) { done <- err }); err != nil {
		return err
	}
	return <-done // when the host ends, too
}
