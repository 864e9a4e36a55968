package replicas

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// maxPending limits the names that wait to be sent to other domains; each domain has an equal
	// part. Further names are found in the store when there is room again.
	maxPending = 1 << 20
	// maxParallel is the number of names that are sent to a domain at one time.
	maxParallel = 64
	// A domain that does not answer is tried again with one name after initialRetry, doubled up to
	// maxRetry. A busy domain is tried again after busyPause, and a name that a domain refuses for
	// the time being, for example because its disk is full, after refusedPause.
	initialRetry, maxRetry, busyPause, refusedPause = 500 * time.Millisecond, 15 * time.Second, 100 * time.Millisecond, 15 * time.Second
)

// peer is the name service of another domain.
type peer struct {
	Domain
	cache     *gnrs.Cache
	store     Store
	log       *slog.Logger
	warnLimit lograte.Limit
	changed   func(frame.GUID)
	room      int
	slots     chan struct{}
	wakeup    chan struct{}

	mu           sync.Mutex
	pending      map[frame.GUID]*pendingName // each of them is in queue, in later, or being sent
	queue        []frame.GUID                // names to send now
	later        []refusedName               // names to send later, in the order of their times
	sending      int                         // the number of names being sent
	backoff      time.Duration               // the pause after the domain has not answered; zero for a domain that answers
	backoffSince time.Time                   // when backoff was last changed
	scan         scan
}

// pendingName is a name whose record has to be sent.
type pendingName struct {
	since     time.Time // when it was written
	rewritten bool      // it has been written again since it was taken from queue
}

// refusedName is a name that the domain has refused for the time being.
type refusedName struct {
	name frame.GUID
	at   time.Time // when it is sent again
}

func newPeer(d Domain, local netip.Addr, domains int, o Options) (p *peer, err error) {
	p = &peer{
		Domain: d, store: o.Store, log: o.Log, room: maxPending / domains, changed: func(frame.GUID) {},
		pending: map[frame.GUID]*pendingName{}, slots: make(chan struct{}, maxParallel), wakeup: make(chan struct{}, 1),
	}
	p.cache, err = gnrs.DialPeer(local, d.Addr, domains, func(name frame.GUID) { p.changed(name) })
	return p, err
}

// written queues a name that was written just now. If there is no room, it is found in the store
// later.
func (p *peer) written(name frame.GUID) {
	if !p.add(name, time.Now()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.scan.missed = true
	}
}

// add queues a name that was written at a time, and reports whether there was room.
func (p *peer) add(name frame.GUID, written time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch x := p.pending[name]; {
	case x != nil:
		x.rewritten = true
	case len(p.pending) >= p.room:
		return false
	default:
		p.pending[name] = &pendingName{since: written}
		p.queue = append(p.queue, name)
		p.wake()
	}
	return true
}

// wake wakes run. The mutex is held.
func (p *peer) wake() {
	select {
	case p.wakeup <- struct{}{}:
	default:
	}
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending)
}

// next returns a name to send now. If ok is false, wait is the time until the next name is due, or
// zero if no name has a time.
func (p *peer) next(now time.Time) (name frame.GUID, ok bool, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.later) > 0 && !now.Before(p.later[0].at) {
		p.queue = append(p.queue, p.later[0].name)
		p.later = p.later[1:]
	}
	if len(p.later) > 0 {
		wait = p.later[0].at.Sub(now)
	}
	if len(p.queue) == 0 || p.backoff > 0 && p.sending > 0 {
		return name, false, wait
	}
	name = p.queue[0]
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	}
	p.pending[name].rewritten = false
	p.sending++
	return name, true, 0
}

// sent records the result of sending a name.
func (p *peer) sent(name frame.GUID, err error, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sending--
	switch x := p.pending[name]; {
	case err == nil && !x.rewritten:
		if delete(p.pending, name); len(p.pending) == 0 {
			p.pending = map[frame.GUID]*pendingName{} // a map never shrinks
		}
	case errors.Is(err, errRefusedNow):
		p.later = append(p.later, refusedName{name, now.Add(refusedPause)})
	default:
		p.queue = append(p.queue, name)
	}
	p.wake()
}

// run sends names until ctx ends.
func (p *peer) run(ctx context.Context) {
	var telling sync.WaitGroup
	defer telling.Wait()
	for ctx.Err() == nil {
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		name, ok, wait := p.next(time.Now())
		if ok {
			telling.Go(func() {
				asked, err := p.send(ctx, name)
				p.waitAfter(ctx, asked, err)
				p.sent(name, err, time.Now())
				<-p.slots
			})
			continue
		}
		<-p.slots
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-p.wakeup:
		case <-due:
		case <-ctx.Done():
		}
	}
}

// waitAfter pauses after a domain has not accepted a name, for longer and longer if it does not
// answer.
func (p *peer) waitAfter(ctx context.Context, asked bool, err error) {
	if !asked || ctx.Err() != nil {
		return
	}
	silent := errors.Is(err, gnrs.ErrNoAnswer)
	p.mu.Lock()
	before, pending := p.backoff, len(p.pending)
	switch now := time.Now(); {
	case !silent:
		p.backoff, p.backoffSince = 0, time.Time{}
	case now.Sub(p.backoffSince) >= p.backoff: // once for all names that are being sent
		p.backoff, p.backoffSince = min(max(2*p.backoff, initialRetry), maxRetry), now
	}
	after := p.backoff
	p.mu.Unlock()
	switch {
	case before == 0 && after > 0:
		p.warnLimit.Warn(p.log, "a domain does not answer: it gets what it misses when it does", "domain", p.Name, "at", p.Addr, "error", err)
	case before > 0 && after == 0:
		p.warnLimit.Info(p.log, "a domain answers again", "domain", p.Name, "behind", pending)
	}
	switch {
	case silent:
		_ = tasks.Sleep(ctx, after)
	case err != nil && !errors.Is(err, errRefusedNow):
		_ = tasks.Sleep(ctx, busyPause)
	}
}

// errRefusedNow means that a domain has refused a name for the time being.
var errRefusedNow = errors.New("the domain does not take it now")

// send sends the record of a name to the domain. asked reports whether the domain was asked. An
// error means that the name has to be sent again: it wraps gnrs.ErrNoAnswer or errRefusedNow, or
// means that the domain is busy.
func (p *peer) send(ctx context.Context, name frame.GUID) (asked bool, err error) {
	b, found, err := p.store.Get(nil, name)
	if err != nil {
		return false, errors.Join(errRefusedNow, err)
	}
	if !found {
		return false, nil
	}
	r, err := record.Parse(b)
	if err != nil || r.Expired(time.Now()) {
		return false, nil //nolint:nilerr // nobody needs it any more
	}
	return true, p.write(ctx, r)
}

// write writes a record at the domain; see send for its error.
func (p *peer) write(ctx context.Context, r *record.Record) error {
	err := p.cache.Write(ctx, r)
	refused := (*gnrs.RefusedError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gnrs.ErrNoAnswer) || !errors.As(err, &refused):
		return err
	case refused.Code == gnrs.TooOften, refused.Code == gnrs.Busy, refused.Code == gnrs.Unproven:
		return err
	case refused.Code == gnrs.Old: // the domain has a newer record
		return nil
	}
	p.warnLimit.Warn(p.log, "a domain does not take where a name is", "domain", p.Name, "name", r.GUID(), "error", err)
	if refused.Code == gnrs.Full || refused.Code == gnrs.Failed || refused.Code == gnrs.Over {
		return errors.Join(errRefusedNow, err)
	}
	return nil
}
