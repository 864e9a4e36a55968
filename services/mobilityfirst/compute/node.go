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
	// A sender is proven for provenLifetime after the answer to one of its chunks was taken over. A
	// node accepts up to maxProven bytes of chunks of proven senders in total, and up to
	// maxProvenPerSender, or one chunk, of each. For other senders the limits are maxUnproven and
	// maxUnprovenPerSender. A chunk counts as at least minCharge. The node refuses further chunks:
	// they stay with their senders, whose hosts deliver them again later, and chunks of other
	// senders are delivered meanwhile.
	maxProven, maxProvenPerSender     = 8 << 20, 2 << 20
	maxUnproven, maxUnprovenPerSender = 5 << 20, 1 << 20
	minCharge                         = 256 << 10
	provenLifetime                    = 5 * time.Minute
	// maxResults limits the bytes of results in flight, separately for proven and for unproven
	// senders: two results of the largest size fit. Each sender has one result in flight.
	maxResults = hostapi.MaxUnderway / 2
	// refusalLifetime is how long chunks of a sender are refused after one of them was refused,
	// unless the refused chunk comes again. Until the host learns of the first refusal, it delivers
	// chunks that it has already read, which takes at most this long.
	refusalLifetime = time.Second
	// maxSenders limits the senders that are remembered.
	maxSenders = 4096
)

// ErrUnable means that a function could not be called here and now: its chunk stays with the
// sender, for this node or another.
var ErrUnable = errors.New("the function cannot be called now")

// Function computes a result from a payload. An error that does not wrap ErrUnable is sent to the
// sender. It may be called concurrently.
type Function func(ctx context.Context, o *Order, payload []byte) ([]byte, error)

// Options configures a Node.
type Options struct {
	// Host is the host at which the function's name is attached. The Node receives all of its
	// chunks, and closes it.
	Host *hostapi.Client
	// Function is the node's function. It is called for several senders at once, but only once at a
	// time for each sender.
	Function Function
	// Workers limits the concurrent calls. Zero selects the number of processors.
	Workers int
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// Node calls a function on chunks and sends the results.
type Node struct {
	Options
	warnLimit lograte.Limit // for log lines that others can cause
	workers   *semaphore.Weighted
	results   [standings]*semaphore.Weighted // bytes in flight

	mu       sync.Mutex
	senders  map[frame.GUID]*sender
	held     [standings]int // bytes
	counters Counters
}

// standing says whether a sender is proven.
type standing int

const (
	unproven standing = iota
	proven            // one of its chunks has ended lately
	standings
)

// sender is a name that has sent chunks. Node.mu guards it.
type sender struct {
	waiting  []*acceptedChunk
	active   bool
	held     int       // bytes
	lastEnd  time.Time // when one of its chunks last ended; zero if one was refused since
	lastUsed time.Time
	// refused identifies the chunk that has to come again, until the time until, before other
	// chunks of the sender are accepted.
	refused callID
	until   time.Time
}

// callID identifies a call of a sender.
type callID struct{ flow, number uint64 }

func (o *Order) id() callID { return callID{o.Flow, o.Number} }

// acceptedChunk is a chunk that the node has accepted.
type acceptedChunk struct {
	chunk hostapi.Chunk
	*message
	sender   *sender
	standing standing // the standing of its sender when it was accepted
}

// charge returns the number of bytes with which the chunk counts against the limits.
func (w *acceptedChunk) charge() int { return max(len(w.body), minCharge) }

// Counters counts what a node has done since its start, and describes what it holds.
type Counters struct {
	// Called counts the calls whose results were taken over, Failed those whose failure was
	// reported to the sender, and Refused the refused chunks. False counts the refused chunks that
	// were not valid calls of this function.
	Called, Failed, Refused, False uint64
	// Chunks is the number of chunks now, and Running the number of calls.
	Chunks, Running int
	// Load is the used part of the capacity for chunks of proven senders, from 0 to 1. Chunks of
	// other senders do not count: otherwise anybody could make the node seem full, so that the
	// network leads all senders to other nodes.
	Load float64
}

// NewNode returns a node that does nothing until Run is called.
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

// Counters returns the current counters.
func (n *Node) Counters() Counters {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.counters
	c.Load = float64(n.held[proven]) / maxProven
	return c
}

// Run runs the node until ctx ends or the host fails, which it returns as an error. Chunks that
// have not ended stay with their senders.
func (n *Node) Run(ctx context.Context) error {
	all := tasks.New()
	defer all.Stop()
	defer func() { _ = n.Host.Close() }() // this ends all waiting calls
	for {
		x, err := n.Host.Receive(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = n.accept(all, x)
		}
		if err != nil {
			return err
		}
	}
}

// accept accepts a chunk or refuses it. It returns an error only if the host fails.
func (n *Node) accept(all *tasks.Group, x hostapi.Chunk) error {
	m, err := n.parse(x)
	if err != nil {
		return n.refuseInvalid(x, err)
	}
	n.mu.Lock()
	w, ok := n.admit(x, m, time.Now())
	n.mu.Unlock()
	if !ok {
		return n.Host.Refuse(x)
	}
	if err := m.check(); err != nil { // expensive checks come last
		return n.refuseInvalid(x, err)
	}
	n.mu.Lock()
	w.sender.until = time.Time{}
	n.hold(w, w.charge())
	n.counters.Chunks++
	w.sender.waiting = append(w.sender.waiting, w)
	starts := !w.sender.active
	w.sender.active = true
	n.mu.Unlock()
	if starts {
		all.Start(func(ctx context.Context) { n.serve(ctx, w.sender) })
	}
	return nil
}

// refuseInvalid refuses a chunk that is not a valid call of this function, so that its sender does
// not believe that the function was called.
func (n *Node) refuseInvalid(x hostapi.Chunk, err error) error {
	n.mu.Lock()
	n.counters.False++
	n.mu.Unlock()
	n.warnLimit.Warn(n.Log, "a chunk is no call for this function", "from", x.From, "error", err)
	return n.Host.Refuse(x)
}

// parse parses a chunk, and checks that it is a call of this function.
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

// check checks that the sender has ordered the call. The error wraps ErrSignature.
func (m *message) check() error {
	if m.Sum != sha256.Sum256(m.body) {
		return fmt.Errorf("payload of order %d: %w", m.Number, ErrSignature)
	}
	return m.Verify()
}

// admit reports whether a chunk may be accepted: there is room, and no chunk before it was refused.
// n.mu is held.
func (n *Node) admit(x hostapi.Chunk, m *message, now time.Time) (*acceptedChunk, bool) {
	s := n.sender(m.Source, now)
	if s == nil {
		n.counters.Refused++
		return nil, false
	}
	s.lastUsed = now
	w := &acceptedChunk{x, m, s, unproven}
	most, share := maxUnproven, maxUnprovenPerSender
	if now.Sub(s.lastEnd) < provenLifetime {
		w.standing, most, share = proven, maxProven, maxProvenPerSender
	}
	outOfOrder := now.Before(s.until) && m.id() != s.refused
	if outOfOrder || n.held[w.standing]+w.charge() > most || s.held > 0 && s.held+w.charge() > share {
		if !outOfOrder {
			s.refused, s.until = m.id(), now.Add(refusalLifetime)
		}
		n.counters.Refused++
		return nil, false
	}
	return w, true
}

// hold counts bytes of a chunk. n.mu is held.
func (n *Node) hold(w *acceptedChunk, bytes int) {
	w.sender.held += bytes
	n.held[w.standing] += bytes
}

// sender returns the sender with a name, or nil if there are too many that cannot be removed. n.mu
// is held.
func (n *Node) sender(name frame.GUID, now time.Time) *sender {
	if s := n.senders[name]; s != nil {
		return s
	}
	for _, proven := range []bool{false, true} {
		if len(n.senders) < maxSenders {
			break
		}
		maps.DeleteFunc(n.senders, func(_ frame.GUID, s *sender) bool {
			return !s.active && s.held == 0 && now.Sub(s.lastUsed) > refusalLifetime && (proven || now.Sub(s.lastEnd) >= provenLifetime)
		})
	}
	if len(n.senders) >= maxSenders {
		return nil
	}
	s := &sender{}
	n.senders[name] = s
	return s
}

// serve calls the function on the chunks of a sender, one after the other, until there are none.
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
			n.warnLimit.Warn(n.Log, "a chunk is left with its sender", "from", w.Source, "error", err)
			n.giveBack(w)
			continue
		}
		n.answer(ctx, w, out, err)
	}
}

// running adds to the number of running calls.
func (n *Node) running(by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counters.Running += by
}

// call calls the function. It does not call it for an empty payload, with which a sender can mark
// the end of its data; the result is then empty, too.
func (n *Node) call(ctx context.Context, w *acceptedChunk) (out []byte, err error) {
	if err := w.checkValid(time.Now(), custody.MaxSkew); err != nil || len(w.body) == 0 {
		return nil, err
	}
	if out, err = n.Function(ctx, &w.Order, w.body); err == nil && len(out) > MaxPayload {
		err = fmt.Errorf("a result of %d bytes: at most %d", len(out), MaxPayload)
	}
	return out, err
}

// answerService is the service of results and failures. With ContentResponse, hosts keep them only
// for hostapi.ContentWithin. If the receiver has not taken one by then, its chunk stays with the
// sender, which keeps it as long as its other chunks.
const answerService = frame.Compute | frame.ContentResponse

// answer sends the result to the destination, or the reason of a failure to the sender, and waits
// for the outcome. Until then the chunk belongs to the sender.
func (n *Node) answer(ctx context.Context, w *acceptedChunk, out []byte, why error) {
	to, m, as := w.Destination, message{result, w.Order, out}, &n.counters.Called
	if why != nil {
		n.warnLimit.Warn(n.Log, "the function has failed", "from", w.Source, "number", w.Number, "error", why)
		reason := why.Error()
		to, m, as = w.Source, message{failure, w.Order, []byte(reason[:min(len(reason), hostapi.MaxReason)])}, &n.counters.Failed
	}
	bytes := int64(Overhead + len(m.body) + hostapi.Overhead)
	if n.results[w.standing].Acquire(ctx, bytes) != nil {
		return // ctx has ended
	}
	defer n.results[w.standing].Release(bytes)
	taken := make(chan error, 1)
	err := n.Host.Send(ctx, to, answerService, m.append(), func(err error) { taken <- err })
	if err == nil {
		err = <-taken // the outcome is known within hostapi.ContentWithin, or when the connection to the host is closed
	}
	switch {
	case err == nil:
		n.end(w, as)
	case ctx.Err() == nil:
		n.warnLimit.Warn(n.Log, "what a function has answered was not taken", "from", w.Source, "for", to, "error", err)
		n.giveBack(w)
	}
}

// end takes over a chunk whose answer was taken over.
func (n *Node) end(w *acceptedChunk, as *uint64) {
	n.mu.Lock()
	*as++
	n.counters.Chunks--
	w.sender.lastEnd = time.Now()
	n.hold(w, -w.charge())
	n.mu.Unlock()
	_ = n.Host.Take(w.chunk) // it fails if the host has ended, and then Run fails as well
}

// giveBack refuses a chunk and the sender's chunks behind it, so that they come again in order.
func (n *Node) giveBack(w *acceptedChunk) {
	n.mu.Lock()
	s := w.sender
	all := append([]*acceptedChunk{w}, s.waiting...)
	s.waiting, s.lastEnd = nil, time.Time{}
	s.refused, s.until = w.id(), time.Now().Add(refusalLifetime)
	n.counters.Refused += uint64(len(all))
	n.counters.Chunks -= len(all)
	for _, w := range all {
		n.hold(w, -w.charge())
	}
	n.mu.Unlock()
	for _, w := range all {
		_ = n.Host.Refuse(w.chunk) // see end
	}
}
