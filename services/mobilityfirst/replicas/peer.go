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
	// maxBehind is how many names wait at most to be passed on, to all domains together, each of which has an equal part.
	// What is beyond is found in the store when there is room again.
	maxBehind = 1 << 20
	// atOnce is how many names are passed on at one time to a domain.
	atOnce = 64
	// A domain that does not answer is tried again after retry, doubled up to retryMost, with one name; one that has too much
	// to do after busyFor; and one that does not take a name for a time, as its disk is full, after laterFor.
	retry, retryMost, busyFor, laterFor = 500 * time.Millisecond, 15 * time.Second, 100 * time.Millisecond, 15 * time.Second
)

// peer is another domain's name service.
type peer struct {
	Domain
	cache   *gnrs.Cache
	store   Store
	log     *slog.Logger
	lines   lograte.Limit
	changed func(frame.GUID)
	room    int
	slots   chan struct{}
	more    chan struct{}

	mu      sync.Mutex
	behind  map[frame.GUID]*pending // each of which is in queue, in later, or being passed on
	queue   []frame.GUID            // to be passed on now
	later   []refused               // to be passed on later, in the order of their times
	telling int                     // how many are being passed on
	pause   time.Duration           // for which it is left alone after it has not answered; zero for a domain that answers
	paused  time.Time               // since when that is so long
	scan    scan
}

// pending is a name that is to be passed on.
type pending struct {
	since time.Time // when it was written
	again bool      // it has been written since it began to be passed on
}

// refused is a name that the domain has not taken for a time.
type refused struct {
	name frame.GUID
	at   time.Time // when it is to be passed on again
}

func newPeer(d Domain, local netip.Addr, domains int, o Options) (p *peer, err error) {
	p = &peer{
		Domain: d, store: o.Store, log: o.Log, room: maxBehind / domains, changed: func(frame.GUID) {},
		behind: map[frame.GUID]*pending{}, slots: make(chan struct{}, atOnce), more: make(chan struct{}, 1),
	}
	p.cache, err = gnrs.DialPeer(local, d.Addr, domains, func(name frame.GUID) { p.changed(name) })
	return p, err
}

// written has a name passed on that was written just now. If there is no room for it, it is looked for in the store.
func (p *peer) written(name frame.GUID) {
	if !p.add(name, time.Now()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.scan.missed = true
	}
}

// add has a name passed on that was written at a time, and says whether there was room for it.
func (p *peer) add(name frame.GUID, written time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch x := p.behind[name]; {
	case x != nil:
		x.again = true
	case len(p.behind) >= p.room:
		return false
	default:
		p.behind[name] = &pending{since: written}
		p.queue = append(p.queue, name)
		p.wake()
	}
	return true
}

// wake has run look for names. The lock is held.
func (p *peer) wake() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.behind)
}

// next is a name that is to be passed on now, and if there is none, how long none is later; zero for until there is more.
func (p *peer) next(now time.Time) (name frame.GUID, is bool, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.later) > 0 && !now.Before(p.later[0].at) {
		p.queue = append(p.queue, p.later[0].name)
		p.later = p.later[1:]
	}
	if len(p.later) > 0 {
		wait = p.later[0].at.Sub(now)
	}
	if len(p.queue) == 0 || p.pause > 0 && p.telling > 0 {
		return name, false, wait
	}
	name = p.queue[0]
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	}
	p.behind[name].again = false
	p.telling++
	return name, true, 0
}

// told notes what has become of a name that was passed on.
func (p *peer) told(name frame.GUID, err error, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.telling--
	switch x := p.behind[name]; {
	case err == nil && !x.again:
		if delete(p.behind, name); len(p.behind) == 0 {
			p.behind = map[frame.GUID]*pending{} // the old one stays as large as it ever was
		}
	case errors.Is(err, errLater):
		p.later = append(p.later, refused{name, now.Add(laterFor)})
	default:
		p.queue = append(p.queue, name)
	}
	p.wake()
}

// run passes names on until ctx ends.
func (p *peer) run(ctx context.Context) {
	var telling sync.WaitGroup
	defer telling.Wait()
	for ctx.Err() == nil {
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		name, is, wait := p.next(time.Now())
		if is {
			telling.Go(func() {
				asked, err := p.tell(ctx, name)
				p.rest(ctx, asked, err)
				p.told(name, err, time.Now())
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
		case <-p.more:
		case <-due:
		case <-ctx.Done():
		}
	}
}

// rest waits if the domain has not taken a name, for longer and longer if it does not answer.
func (p *peer) rest(ctx context.Context, asked bool, err error) {
	if !asked || ctx.Err() != nil {
		return
	}
	silent := errors.Is(err, gnrs.ErrNoAnswer)
	p.mu.Lock()
	before, behind := p.pause, len(p.behind)
	switch now := time.Now(); {
	case !silent:
		p.pause, p.paused = 0, time.Time{}
	case now.Sub(p.paused) >= p.pause: // and not for each of those that are passed on
		p.pause, p.paused = min(max(2*p.pause, retry), retryMost), now
	}
	after := p.pause
	p.mu.Unlock()
	switch {
	case before == 0 && after > 0:
		p.lines.Warn(p.log, "a domain does not answer: it gets what it misses when it does", "domain", p.Name, "at", p.Addr, "error", err)
	case before > 0 && after == 0:
		p.lines.Info(p.log, "a domain answers again", "domain", p.Name, "behind", behind)
	}
	switch {
	case silent:
		_ = tasks.Sleep(ctx, after)
	case err != nil && !errors.Is(err, errLater):
		_ = tasks.Sleep(ctx, busyFor)
	}
}

// errLater is for a name that a domain does not take now, though it answers.
var errLater = errors.New("the domain does not take it now")

// tell tells the domain where a name is, and says whether it was asked to take it. An error says that it is to be told again:
// it wraps gnrs.ErrNoAnswer or errLater, or is for a domain that has too much to do.
func (p *peer) tell(ctx context.Context, name frame.GUID) (asked bool, err error) {
	b, found, err := p.store.Get(nil, name)
	if err != nil {
		return false, errors.Join(errLater, err)
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

// write has the domain take a record, as tell says.
func (p *peer) write(ctx context.Context, r *record.Record) error {
	err := p.cache.Write(ctx, r)
	refused := (*gnrs.RefusedError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gnrs.ErrNoAnswer) || !errors.As(err, &refused):
		return err
	case refused.Code == gnrs.TooOften, refused.Code == gnrs.Busy:
		return err
	case refused.Code == gnrs.Old: // it has a newer one
		return nil
	}
	p.lines.Warn(p.log, "a domain does not take where a name is", "domain", p.Name, "name", r.GUID(), "error", err)
	if refused.Code == gnrs.Full || refused.Code == gnrs.Failed || refused.Code == gnrs.Over {
		return errors.Join(errLater, err)
	}
	return nil
}
