package access

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// attachAgain is how far two attachments of a name are apart at least.
	attachAgain = time.Second
	// When a host is gone its name stays attached until what it has sent is taken, for lingerFor at most; and for lastFor when
	// the router ends. So long the host of ours hears of its chunks, and then goes on with those that it has.
	lingerFor, lastFor = 5 * time.Second, 2 * time.Second
	// lookEvery is how often it is looked whether that is so.
	lookEvery = 20 * time.Millisecond
)

// session is a host's name while it is attached.
type session struct {
	guest  *guest
	client *hostapi.Client
	work   *tasks.Group
	// leaving says that the host is gone: what comes for it is left with its senders. Router.mu guards it.
	leaving bool
	// closed says that the connection is ended from here, so that the host of ours goes on with what it has. Router.mu guards it.
	closed bool
}

// serve has the name attached while that is wanted, until ctx ends.
func (g *guest) serve(ctx context.Context) {
	said := ""
	var err error
	for {
		if !g.wanted(err != nil) || ctx.Err() != nil {
			return
		}
		began := time.Now()
		err = g.attach(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			said = ""
		} else if err.Error() != said {
			said = err.Error()
			g.router.Log.Warn("name is not attached", "guid", g.GUID, "name", g.name, "error", err)
		}
		_ = tasks.Sleep(ctx, attachAgain-time.Since(began))
	}
}

// wanted says whether the name is to be attached: while the host is there, and when that has failed also while there is something of
// it that the host of ours has not got.
func (g *guest) wanted(failed bool) bool {
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	return g.there || failed && g.chunks > 0
}

// attach attaches the name until the host is gone, ctx ends or the host of ours fails.
func (g *guest) attach(ctx context.Context) error {
	client, err := hostapi.Open(ctx, g.router.Socket, g.Key)
	if err != nil {
		return err
	}
	s := &session{guest: g, client: client, work: tasks.New()}
	failed := make(chan error, 1)
	s.begin()
	s.work.Start(func(ctx context.Context) { failed <- s.receive(ctx) })
	err = s.watch(ctx, failed)
	s.end(err == nil)
	s.work.Cancel()
	_ = client.Close() // ends what waits
	s.work.Stop()
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	for _, in := range g.incoming { // these are their senders' again
		in.queue, in.active = nil, false
	}
	return err
}

// begin has what there is sent.
func (s *session) begin() {
	g := s.guest
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	g.session = s
	for _, f := range g.flows {
		f.again, f.proven, f.failed, f.failures, f.silences = time.Time{}, time.Time{}, false, 0, 0
		f.running = s.work.Start(func(ctx context.Context) { s.carry(ctx, f) })
	}
}

// end has nothing more begun, and says whether the connection is to be closed although the host of ours has not failed.
func (s *session) end(closed bool) {
	s.guest.router.mu.Lock()
	defer s.guest.router.mu.Unlock()
	s.guest.session, s.closed = nil, closed
}

// watch waits until the host is gone and what it has sent is taken or has waited long enough; or the host of ours fails.
func (s *session) watch(ctx context.Context, failed <-chan error) error {
	for {
		gone, _ := s.look(false)
		if gone || ctx.Err() != nil {
			within := lingerFor
			if ctx.Err() != nil {
				within = lastFor
			}
			if back, err := s.linger(ctx, within, failed); !back {
				return err
			}
		}
		select {
		case err := <-failed:
			return err
		case <-s.guest.changed:
		case <-ctx.Done():
		}
	}
}

// linger waits for a while until what a host has sent that is gone is taken. It says whether the host is back, or the router is
// to end, for which less time is left.
func (s *session) linger(ctx context.Context, within time.Duration, failed <-chan error) (back bool, err error) {
	ending := ctx.Err() != nil
	for until := time.Now().Add(within); time.Now().Before(until); {
		gone, over := s.look(ending)
		switch {
		case over && gone:
			return false, nil
		case !gone, ctx.Err() != nil && !ending:
			return true, nil
		}
		select {
		case err := <-failed:
			return false, err
		case <-time.After(lookEvery):
		}
	}
	return false, nil
}

// look says whether the host is gone, and whether nothing is left of what it has sent.
func (s *session) look(ending bool) (gone, over bool) {
	g := s.guest
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	if gone = !g.there || ending; gone && !s.leaving {
		for _, f := range g.flows {
			f.hurry = true
			f.kick()
		}
	}
	s.leaving = gone
	return gone, g.chunks == 0
}

// receive takes chunks for the host until ctx ends, or the host of ours does.
func (s *session) receive(ctx context.Context) error {
	for {
		x, err := s.client.Receive(ctx)
		if err != nil {
			return err
		}
		if !s.queue(x, time.Now()) {
			if err := s.client.Refuse(x); err != nil {
				return err
			}
		}
	}
}

// incoming are the chunks for a host from one source, in order. Router.mu guards it.
type incoming struct {
	queue   []hostapi.Chunk
	active  bool
	number  uint32    // of the next
	last    time.Time // when one has come last
	refused time.Time // when some were left with their sender last
}

const (
	// maxIncoming is of how many sources it is remembered how many chunks have come.
	maxIncoming = 1024
	// evictOf is how many sources are looked at for one to be forgotten.
	evictOf = 8
	// afterRefused is for how long chunks are left with a sender behind one that was: so long at most the host of ours
	// brings those that it has read before it hears of the first.
	afterRefused = time.Second
)

// queue has a chunk sent to the host in its turn; false if it is to be left with its sender.
func (s *session) queue(x hostapi.Chunk, now time.Time) bool {
	g := s.guest
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	in := g.incoming[x.From]
	if in == nil {
		if len(g.incoming) == maxIncoming && !g.evict() {
			g.router.counters.Refused++
			return false
		}
		in = &incoming{}
		g.incoming[x.From] = in
	}
	in.last = now
	if behind := now.Sub(in.refused) < afterRefused; behind || s.leaving || x.Service&heldBack != 0 {
		if !behind {
			in.refused = now
		}
		g.router.counters.Refused++
		return false
	}
	in.queue = append(in.queue, x)
	if !in.active {
		in.active = s.work.Start(func(ctx context.Context) { s.bring(ctx, in) })
	}
	return true
}

// evict forgets the source of a few of which nothing has come for the longest time; false if chunks of all are being sent. Router.mu
// is held.
func (g *guest) evict() bool {
	var source frame.GUID
	var oldest *incoming
	seen := 0
	for from, in := range g.incoming { // in no order
		if in.active {
			continue
		}
		if oldest == nil || in.last.Before(oldest.last) {
			source, oldest = from, in
		}
		if seen++; seen == evictOf {
			break
		}
	}
	if oldest == nil {
		return false
	}
	delete(g.incoming, source)
	return true
}

// bring sends the host the chunks from a source, one after the other, until there are no more or ctx ends.
func (s *session) bring(ctx context.Context, in *incoming) {
	g := s.guest
	for {
		x, number, is := s.first(in)
		if !is {
			return
		}
		select {
		case g.delivering <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := g.deliver(ctx, x, number)
		<-g.delivering
		switch {
		case err == nil: // also if ctx has ended: it would else come twice
			s.delivered(in)
			_ = s.client.Take(x) // it fails if the host of ours has ended, and so does receive
		case ctx.Err() != nil:
			return
		default:
			g.router.strange.Warn(g.router.Log, "a chunk is left with its sender", "guid", g.GUID, "from", x.From, "error", err)
			for _, x := range s.giveUp(in) {
				_ = s.client.Refuse(x) // as above
			}
			return
		}
	}
}

// first is the first chunk of a source, with its number.
func (s *session) first(in *incoming) (x hostapi.Chunk, number uint32, is bool) {
	s.guest.router.mu.Lock()
	defer s.guest.router.mu.Unlock()
	if len(in.queue) == 0 {
		in.active = false
		return x, 0, false
	}
	return in.queue[0], in.number, true
}

// delivered forgets the first chunk of a source.
func (s *session) delivered(in *incoming) {
	s.guest.router.mu.Lock()
	defer s.guest.router.mu.Unlock()
	s.guest.router.counters.Delivered++
	in.queue = slices.Delete(in.queue, 0, 1)
	in.number++
}

// giveUp are all chunks of a source, which are left with it.
func (s *session) giveUp(in *incoming) []hostapi.Chunk {
	s.guest.router.mu.Lock()
	defer s.guest.router.mu.Unlock()
	all := in.queue
	in.queue, in.active, in.refused = nil, false, time.Now()
	s.guest.router.counters.Refused += uint64(len(all))
	return all
}
