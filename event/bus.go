package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-net/sluice/store"
)

const (
	sequenceBits = 32
	maxEpoch     = 1<<21 - 1
	epochKey     = "event/epoch"

	// DefaultRing is the default number of events that a bus remembers.
	DefaultRing = 4096
)

// Event is one thing that happened.
type Event struct {
	ID   uint64    `json:"id" doc:"Identifier: starts of the controller in the upper bits, events since the start in the lower 32; never repeats, never goes back"`
	Kind string    `json:"kind" example:"network.switch.up" doc:"What happened: service, object and verb, with dots between"`
	At   time.Time `json:"at" doc:"When it happened"`
	// Attrs is a JSON object.
	Attrs json.RawMessage `json:"attrs,omitempty" doc:"Details; which ones depends on the kind"`
}

// ErrClosed means that the bus has been closed.
var ErrClosed = errors.New("the event bus is closed")

// MissedError means that a subscriber has missed the events between its last one and the oldest
// remembered one. The subscription continues after the gap.
type MissedError struct {
	// After is the identifier of the last event that the subscriber received, Next that of the
	// event that it receives next.
	After, Next uint64
}

func (e *MissedError) Error() string {
	if Epoch(e.After) != Epoch(e.Next) {
		return fmt.Sprintf("events after %d are no longer known: the controller has been restarted since", e.After)
	}
	return fmt.Sprintf("%d events after %d were missed: read faster or start again from the present state", e.Next-e.After-1, e.After)
}

// Epoch returns the number of controller starts in an identifier.
func Epoch(id uint64) uint64 { return id >> sequenceBits }

// Bus numbers events and remembers the latest. NewBus and Open create one.
type Bus struct {
	mu     sync.Mutex
	ring   []Event
	first  uint64        // identifier of the first event of this epoch
	next   uint64        // identifier of the next event
	wake   chan struct{} // closed and replaced whenever an event is added
	closed bool
	log    *slog.Logger
}

// NewBus returns a bus whose first identifier is that of the epoch's first event. It remembers
// size events, or DefaultRing if size is zero or less.
func NewBus(epoch uint64, size int) *Bus {
	if size <= 0 {
		size = DefaultRing
	}
	start := min(epoch, maxEpoch)<<sequenceBits | 1
	return &Bus{
		ring: make([]Event, size), first: start, next: start,
		wake: make(chan struct{}), log: slog.Default(),
	}
}

// Open returns a bus whose epoch is one more than that of the last bus opened on the store.
func Open(ctx context.Context, s store.Store, size int) (*Bus, error) {
	for {
		epoch, op, err := nextEpoch(ctx, s)
		if err != nil {
			return nil, err
		}
		err = s.Apply(store.Essential(ctx), op)
		switch {
		case errors.Is(err, store.ErrConflict):
			continue
		case err != nil:
			return nil, fmt.Errorf("event: store the epoch: %w", err)
		}
		return NewBus(epoch, size), nil
	}
}

func nextEpoch(ctx context.Context, s store.Store) (uint64, store.Op, error) {
	entry, err := s.Get(ctx, epochKey)
	if errors.Is(err, store.ErrNotFound) {
		return 1, store.OpCreate(epochKey, []byte("1")), nil
	}
	if err != nil {
		return 0, store.Op{}, fmt.Errorf("event: read the epoch: %w", err)
	}
	last, err := strconv.ParseUint(string(entry.Value), 10, 64)
	if err != nil {
		return 0, store.Op{}, fmt.Errorf("event: stored epoch: %w", err)
	}
	if last >= maxEpoch {
		return 0, store.Op{}, fmt.Errorf("event: the controller has been started %d times, more than identifiers can count: delete %q from the store", last, epochKey)
	}
	value := strconv.FormatUint(last+1, 10)
	return last + 1, store.OpUpdate(epochKey, []byte(value), entry.Revision), nil
}

// Publish records an event and returns its identifier. It encodes attrs, which should be a
// struct or a map, as JSON before it returns, so the caller may modify attrs afterwards. Publish
// never blocks and is safe for concurrent use.
func (b *Bus) Publish(kind string, attrs any) uint64 {
	var raw json.RawMessage
	if attrs != nil {
		var err error
		if raw, err = json.Marshal(attrs); err != nil {
			b.log.Error("event without its attributes: they cannot be written as JSON", "kind", kind, "error", err)
			raw = nil
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id := b.next
	b.next++
	b.ring[id%uint64(len(b.ring))] = Event{ID: id, Kind: kind, At: time.Now().UTC(), Attrs: raw}
	if !b.closed {
		close(b.wake)
		b.wake = make(chan struct{})
	}
	return id
}

// Last returns the identifier of the latest event, or the one before the first if there is none.
func (b *Bus) Last() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next - 1
}

// Close ends all subscriptions. Events that are published later still get numbers.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.wake)
	}
}

// oldest returns the identifier of the oldest remembered event. The lock is held.
func (b *Bus) oldest() uint64 {
	if n := uint64(len(b.ring)); b.next-b.first > n {
		return b.next - n
	}
	return b.first
}
