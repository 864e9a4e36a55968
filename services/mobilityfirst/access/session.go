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
	// attachInterval is the minimum time between two attachments of a name.
	attachInterval = time.Second
	// When a host has left, its name stays attached until its chunks have been taken over, for at
	// most lingerTime, or shutdownTime when the router ends. During this time the router learns
	// which chunks are taken over. Afterwards the host of Sluice continues to send the chunks that
	// it has been given.
	lingerTime, shutdownTime = 5 * time.Second, 2 * time.Second
	// pollInterval is the time between two checks whether the chunks of a host that has left have
	// been taken over.
	pollInterval = 20 * time.Millisecond
)

// session is a host's attached name.
type session struct {
	guest  *guest
	client *hostapi.Client
	work   *tasks.Group
	// leaving means that the host has left: chunks for it stay with their senders. Router.mu guards
	// it.
	leaving bool
	// closed means that the router has closed the connection, so that the host of Sluice continues
	// to send the chunks that it has. Router.mu guards it.
	closed bool
}

// serve attaches the name while it should be attached, until ctx ends.
func (g *guest) serve(ctx context.Context) {
	logged := ""
	var err error
	for {
		if !g.shouldAttach(err != nil) || ctx.Err() != nil {
			return
		}
		began := time.Now()
		err = g.attach(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			logged = ""
		} else if err.Error() != logged {
			logged = err.Error()
			g.router.Log.Warn("name is not attached", "guid", g.GUID, "name", g.name, "error", err)
		}
		_ = tasks.Sleep(ctx, attachInterval-time.Since(began))
	}
}

// shouldAttach reports whether the name should be attached: while the host is present and, after a
// failure, while the router has chunks of the host.
func (g *guest) shouldAttach(failed bool) bool {
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	return g.present || failed && g.keptChunks > 0
}

// attach attaches the name until the host has left, ctx ends, or the host of Sluice fails.
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
	_ = client.Close() // this ends all waiting calls
	s.work.Stop()
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	for _, in := range g.incoming { // their senders send these again
		in.queue, in.active = nil, false
	}
	return err
}

// begin starts to send the chunks of all flows.
func (s *session) begin() {
	g := s.guest
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	g.session = s
	for _, f := range g.flows {
		f.retryAt, f.proven, f.failed, f.failures, f.unanswered = time.Time{}, time.Time{}, false, 0, 0
		f.running = s.work.Start(func(ctx context.Context) { s.sendFlow(ctx, f) })
	}
}

// end makes the router start no further flows in the session. closed reports whether the connection
// will be closed although the host of Sluice has not failed.
func (s *session) end(closed bool) {
	s.guest.router.mu.Lock()
	defer s.guest.router.mu.Unlock()
	s.guest.session, s.closed = nil, closed
}

// watch waits until the host has left and its chunks have been taken over or have waited long
// enough, or until the host of Sluice fails.
func (s *session) watch(ctx context.Context, failed <-chan error) error {
	for {
		gone, _ := s.poll(false)
		if gone || ctx.Err() != nil {
			within := lingerTime
			if ctx.Err() != nil {
				within = shutdownTime
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

// linger waits, up to the time within, until the chunks of a host that has left are taken over.
// back reports whether the caller must look again, because the host has returned, or because the
// router has begun to end, for which the time is shorter.
func (s *session) linger(ctx context.Context, within time.Duration, failed <-chan error) (back bool, err error) {
	ending := ctx.Err() != nil
	for until := time.Now().Add(within); time.Now().Before(until); {
		gone, done := s.poll(ending)
		switch {
		case done && gone:
			return false, nil
		case !gone, ctx.Err() != nil && !ending:
			return true, nil
		}
		select {
		case err := <-failed:
			return false, err
		case <-time.After(pollInterval):
		}
	}
	return false, nil
}

// poll reports whether the host has left, and whether all of its chunks are done.
func (s *session) poll(ending bool) (gone, done bool) {
	g := s.guest
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	if gone = !g.present || ending; gone && !s.leaving {
		for _, f := range g.flows {
			f.skipRetry = true
			f.wakeUp()
		}
	}
	s.leaving = gone
	return gone, g.keptChunks == 0
}

// receive handles chunks for the host until ctx ends or the host of Sluice fails.
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

// incoming holds the chunks for a host from one source, in order. Router.mu guards it.
type incoming struct {
	queue       []hostapi.Chunk
	active      bool
	number      uint32    // the number of the next chunk
	lastChunk   time.Time // when a chunk was last received
	lastRefusal time.Time // when chunks were last refused
}

const (
	// maxIncoming limits the sources whose chunks are numbered.
	maxIncoming = 1024
	// evictSample is the number of sources among which one is chosen for eviction.
	evictSample = 8
	// refusalLifetime is how long further chunks of a sender are refused after one was refused.
	// Until the host of Sluice learns of the first refusal, it delivers chunks that it has already
	// read, which takes at most this long.
	refusalLifetime = time.Second
)

// queue queues a chunk for the host; it returns false if the chunk has to be refused.
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
	in.lastChunk = now
	if behind := now.Sub(in.lastRefusal) < refusalLifetime; behind || s.leaving || x.Service&unsupportedServices != 0 {
		if !behind {
			in.lastRefusal = now
		}
		g.router.counters.Refused++
		return false
	}
	in.queue = append(in.queue, x)
	if !in.active {
		in.active = s.work.Start(func(ctx context.Context) { s.deliverAll(ctx, in) })
	}
	return true
}

// evict removes the least recently used of a few idle sources; it returns false if all are active.
// Router.mu is held.
func (g *guest) evict() bool {
	var source frame.GUID
	var oldest *incoming
	seen := 0
	for from, in := range g.incoming { // in random order
		if in.active {
			continue
		}
		if oldest == nil || in.lastChunk.Before(oldest.lastChunk) {
			source, oldest = from, in
		}
		if seen++; seen == evictSample {
			break
		}
	}
	if oldest == nil {
		return false
	}
	delete(g.incoming, source)
	return true
}

// deliverAll sends the chunks from a source to the host, one after the other, until there are none
// or ctx ends.
func (s *session) deliverAll(ctx context.Context, in *incoming) {
	g := s.guest
	for {
		x, number, ok := s.first(in)
		if !ok {
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
		case err == nil: // also if ctx has ended, because the chunk would otherwise be delivered twice
			s.delivered(in)
			_ = s.client.Take(x) // it fails if the host of Sluice has ended, and then receive fails as well
		case ctx.Err() != nil:
			return
		default:
			g.router.warnLimit.Warn(g.router.Log, "a chunk is left with its sender", "guid", g.GUID, "from", x.From, "error", err)
			for _, x := range s.giveUp(in) {
				_ = s.client.Refuse(x) // it fails only if the host of Sluice has ended, like Take
			}
			return
		}
	}
}

// first returns the first chunk of a source and its number.
func (s *session) first(in *incoming) (x hostapi.Chunk, number uint32, ok bool) {
	s.guest.router.mu.Lock()
	defer s.guest.router.mu.Unlock()
	if len(in.queue) == 0 {
		in.active = false
		return x, 0, false
	}
	return in.queue[0], in.number, true
}

// delivered removes the first chunk of a source.
func (s *session) delivered(in *incoming) {
	s.guest.router.mu.Lock()
	defer s.guest.router.mu.Unlock()
	s.guest.router.counters.Delivered++
	in.queue = slices.Delete(in.queue, 0, 1)
	in.number++
}

// giveUp removes and returns all chunks of a source, which are to be refused.
func (s *session) giveUp(in *incoming) []hostapi.Chunk {
	s.guest.router.mu.Lock()
	defer s.guest.router.mu.Unlock()
	all := in.queue
	in.queue, in.active, in.lastRefusal = nil, false, time.Now()
	s.guest.router.counters.Refused += uint64(len(all))
	return all
}
