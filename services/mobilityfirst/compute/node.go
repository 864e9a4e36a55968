package compute

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// A sender is proven for provenFor after one of its chunks came to an end. Of chunks of proven senders a node has maxProven
	// bytes at most, shareProven or a single chunk of each; of those of other senders maxUnproven, and shareUnproven. A chunk
	// counts leastCharge at least. What comes beyond that stays with its sender for a while: the host always brings
	// more, so no sender is in the way of all.
	maxProven, shareProven     = 8 << 20, 2 << 20
	maxUnproven, shareUnproven = 5 << 20, 1 << 20
	leastCharge                = 256 << 10
	provenFor                  = 5 * time.Minute
	// maxResults are the bytes of results that are under way of senders of the one kind, and as many of the other: two of
	// the largest. Of one sender there is one result.
	maxResults = hostapi.MaxUnderway / 2
	// afterRefused is for how long chunks are refused behind one of the same sender, if that does not come again: so long
	// at most the host brings those that it has read before it hears of the first.
	afterRefused = time.Second
	// maxSenders is how many are remembered.
	maxSenders = 4096
)

// ErrUnable is for a function that could not be called here and now: its chunk is left with the sender, for this node or another.
var ErrUnable = errors.New("the function cannot be called now")

// Function makes something of a payload. An error that does not wrap ErrUnable is told to the sender. It may be called
// concurrently.
type Function func(ctx context.Context, o *Order, payload []byte) ([]byte, error)

// Options are what a Node works with.
type Options struct {
	// Host is where the function's name is attached. Chunks that come there are the Node's, which closes it.
	Host *hostapi.Client
	// Function is called, for one sender once at a time.
	Function Function
	// Workers is how often it is called at one time. Zero for once on each processor.
	Workers int
	// Log is where the node says what fails; nil for nowhere.
	Log *slog.Logger
}

// Node calls a function on chunks, and sends on what comes of it.
type Node struct {
	Options
	strange lograte.Limit // lines that others can cause
	workers *semaphore.Weighted
	results [standings]*semaphore.Weighted // bytes under way

	mu       sync.Mutex
	senders  map[frame.GUID]*sender
	held     [standings]int // bytes
	counters Counters
}

// standing is what is known of a sender.
type standing int

const (
	unproven standing = iota
	proven            // one of its chunks came to an end lately
	standings
)

// sender is a name whose chunks have come. Node.mu guards it.
type sender struct {
	waiting []*work
	active  bool
	held    int       // bytes
	ended   time.Time // when one of its chunks came to an end last, zero if one was left with it since
	used    time.Time
	// refused is what comes again of it first, until a time.
	refused callID
	until   time.Time
}

// callID is a call among those of its sender.
type callID struct{ flow, number uint64 }

func (o *Order) id() callID { return callID{o.Flow, o.Number} }

// work is a chunk that the node has accepted.
type work struct {
	chunk hostapi.Chunk
	*message
	of       *sender
	standing standing // as which it was accepted
}

// charge is what it counts.
func (w *work) charge() int { return max(len(w.body), leastCharge) }

// Counters are what a node has done since it was made, and what it has.
type Counters struct {
	// Called are calls whose results their destinations have taken, Failed those of which the sender was told that they
	// have failed, and Refused how often a chunk was left with its sender; False is how often that was no call for this
	// function.
	Called, Failed, Refused, False uint64
	// Chunks are how many it has now, and Running how many of them the function is called on.
	Chunks, Running int
	// Load is how much of what it may have of chunks of proven senders is taken, from 0 to 1. Others do not count: any
	// of them could have everybody led elsewhere.
	Load float64
}

// NewNode returns a node that does nothing until Run.
func NewNode(o Options) *Node {
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	n := &Node{Options: o, workers: semaphore.NewWeighted(int64(o.Workers)), senders: map[frame.GUID]*sender{}}
	for i := range n.results {
		n.results[i] = semaphore.NewWeighted(maxResults)
	}
	return n
}

// Counters is what it has done until now.
func (n *Node) Counters() Counters {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.counters
	c.Load = float64(n.held[proven]) / maxProven
	return c
}

// Run works until ctx ends, or the host does: then the error says so. What it has not ended stays with its senders.
func (n *Node) Run(ctx context.Context) error {
	all := tasks.New()
	defer all.Stop()
	defer func() { _ = n.Host.Close() }() // ends what waits
	for {
		x, err := n.Host.Receive(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = n.take(all, x)
		}
		if err != nil {
			return err
		}
	}
}

// take accepts a chunk, or leaves it with its sender. An error is the host's.
func (n *Node) take(all *tasks.Group, x hostapi.Chunk) error {
	m, err := n.parse(x)
	if err != nil {
		return n.notOurs(x, err)
	}
	n.mu.Lock()
	w, may := n.may(x, m, time.Now())
	n.mu.Unlock()
	if !may {
		return n.Host.Refuse(x)
	}
	if err := m.check(); err != nil { // what costs comes last
		return n.notOurs(x, err)
	}
	n.mu.Lock()
	w.of.until = time.Time{}
	n.hold(w, w.charge())
	n.counters.Chunks++
	w.of.waiting = append(w.of.waiting, w)
	starts := !w.of.active
	w.of.active = true
	n.mu.Unlock()
	if starts {
		all.Start(func(ctx context.Context) { n.serve(ctx, w.of) })
	}
	return nil
}

// notOurs leaves a chunk with its sender that is no call for this function: it is not to believe that it was called.
func (n *Node) notOurs(x hostapi.Chunk, err error) error {
	n.mu.Lock()
	n.counters.False++
	n.mu.Unlock()
	n.strange.Warn(n.Log, "a chunk is no call for this function", "from", x.From, "error", err)
	return n.Host.Refuse(x)
}

// parse says what a chunk orders.
func (n *Node) parse(x hostapi.Chunk) (*message, error) {
	m, err := parse(x.Payload)
	switch {
	case x.Service != frame.Compute:
		return nil, fmt.Errorf("service %#04x: %w", uint16(x.Service), ErrMessage)
	case err != nil:
		return nil, err
	case m.kind != call:
		return nil, fmt.Errorf("kind %d: %w", m.kind, ErrMessage)
	case m.Source != x.From || m.Function != n.Host.Name:
		return nil, fmt.Errorf("order of %v for %v: %w", m.Source, m.Function, ErrSignature)
	}
	return m, nil
}

// check says whether a sender has ordered the call. The error wraps ErrSignature.
func (m *message) check() error {
	if m.Sum != sha256.Sum256(m.body) {
		return fmt.Errorf("payload of order %d: %w", m.Number, ErrSignature)
	}
	return m.Verify()
}

// may says whether a chunk may be accepted: there is room, and none before it was refused. n.mu is held.
func (n *Node) may(x hostapi.Chunk, m *message, now time.Time) (*work, bool) {
	s := n.sender(m.Source, now)
	if s == nil {
		n.counters.Refused++
		return nil, false
	}
	s.used = now
	w := &work{x, m, s, unproven}
	most, share := maxUnproven, shareUnproven
	if now.Sub(s.ended) < provenFor {
		w.standing, most, share = proven, maxProven, shareProven
	}
	behind := now.Before(s.until) && m.id() != s.refused
	if behind || n.held[w.standing]+w.charge() > most || s.held > 0 && s.held+w.charge() > share {
		if !behind {
			s.refused, s.until = m.id(), now.Add(afterRefused)
		}
		n.counters.Refused++
		return nil, false
	}
	return w, true
}

// hold counts bytes of a chunk. n.mu is held.
func (n *Node) hold(w *work, bytes int) {
	w.of.held += bytes
	n.held[w.standing] += bytes
}

// sender is that of a name; nil if there are too many that cannot be forgotten. n.mu is held.
func (n *Node) sender(name frame.GUID, now time.Time) *sender {
	if s := n.senders[name]; s != nil {
		return s
	}
	for _, proven := range []bool{false, true} {
		if len(n.senders) < maxSenders {
			break
		}
		maps.DeleteFunc(n.senders, func(_ frame.GUID, s *sender) bool {
			return !s.active && s.held == 0 && now.Sub(s.used) > afterRefused && (proven || now.Sub(s.ended) >= provenFor)
		})
	}
	if len(n.senders) >= maxSenders {
		return nil
	}
	s := &sender{}
	n.senders[name] = s
	return s
}

// serve calls the function on what a sender has sent, one after the other, until there is nothing.
func (n *Node) serve(ctx context.Context, s *sender) {
	for {
		n.mu.Lock()
		if len(s.waiting) == 0 || ctx.Err() != nil {
			s.waiting, s.active = nil, false
			n.mu.Unlock()
			return
		}
		w := s.waiting[0]
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		n.mu.Unlock()
		if n.workers.Acquire(ctx, 1) != nil {
			continue // ctx has ended
		}
		n.running(1)
		out, err := n.call(ctx, w)
		n.running(-1)
		n.workers.Release(1)
		if ctx.Err() != nil {
			continue
		}
		if errors.Is(err, ErrUnable) {
			n.strange.Warn(n.Log, "a chunk is left with its sender", "from", w.Source, "error", err)
			n.leave(w)
			continue
		}
		n.answer(ctx, w, out, err)
	}
}

// running counts calls that have begun, or ended (-1).
func (n *Node) running(by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counters.Running += by
}

// call calls the function: not on nothing, which is nothing, so that a sender can say that there is no more.
func (n *Node) call(ctx context.Context, w *work) (out []byte, err error) {
	if err := w.holds(time.Now(), custody.MaxSkew); err != nil || len(w.body) == 0 {
		return nil, err
	}
	if out, err = n.Function(ctx, &w.Order, w.body); err == nil && len(out) > MaxPayload {
		err = fmt.Errorf("a result of %d bytes: at most %d", len(out), MaxPayload)
	}
	return out, err
}

// answers is the service of results and failures: hosts keep them for hostapi.ContentWithin. Who does not take one in that
// time leaves the chunk with its sender, which keeps it for as long as any.
const answers = frame.Compute | frame.ContentResponse

// answer sends the destination the result, or the sender the reason why there is none, and waits until that is taken, or
// will not be. Until then the chunk is the sender's.
func (n *Node) answer(ctx context.Context, w *work, out []byte, why error) {
	to, m, as := w.Destination, message{result, w.Order, out}, &n.counters.Called
	if why != nil {
		n.strange.Warn(n.Log, "the function has failed", "from", w.Source, "number", w.Number, "error", why)
		reason := why.Error()
		to, m, as = w.Source, message{failure, w.Order, []byte(reason[:min(len(reason), hostapi.MaxReason)])}, &n.counters.Failed
	}
	bytes := int64(Overhead + len(m.body) + hostapi.Overhead)
	if n.results[w.standing].Acquire(ctx, bytes) != nil {
		return // ctx has ended
	}
	defer n.results[w.standing].Release(bytes)
	taken := make(chan error, 1)
	err := n.Host.Send(ctx, to, answers, m.append(), func(err error) { taken <- err })
	if err == nil {
		err = <-taken // which comes within what hosts keep answers for, or when the connection with the host is closed
	}
	switch {
	case err == nil:
		n.end(w, as)
	case ctx.Err() == nil:
		n.strange.Warn(n.Log, "what a function has answered was not taken", "from", w.Source, "for", to, "error", err)
		n.leave(w)
	}
}

// end is for a chunk of which the answer was taken.
func (n *Node) end(w *work, as *uint64) {
	n.mu.Lock()
	*as++
	n.counters.Chunks--
	w.of.ended = time.Now()
	n.hold(w, -w.charge())
	n.mu.Unlock()
	_ = n.Host.Take(w.chunk) // it fails if the host has ended, and so does Run
}

// leave leaves a chunk with its sender, and those behind it, so that they come again in order.
func (n *Node) leave(w *work) {
	n.mu.Lock()
	s := w.of
	all := append([]*work{w}, s.waiting...)
	s.waiting, s.ended = nil, time.Time{}
	s.refused, s.until = w.id(), time.Now().Add(afterRefused)
	n.counters.Refused += uint64(len(all))
	n.counters.Chunks -= len(all)
	for _, w := range all {
		n.hold(w, -w.charge())
	}
	n.mu.Unlock()
	for _, w := range all {
		_ = n.Host.Refuse(w.chunk) // as above
	}
}
