package event

import "context"

// Subscription reads a bus from a certain event on. It holds no resources:
// one that is no longer wanted is just forgotten. It is for one goroutine.
type Subscription struct {
	bus  *Bus
	last uint64
}

// Subscribe returns a subscription to the events after the identifier. Zero
// means from the oldest remembered event on; Last() means only new ones.
func (b *Bus) Subscribe(after uint64) *Subscription {
	return &Subscription{bus: b, last: after}
}

// Next returns the next event and waits for it until ctx ends. If events were
// missed it returns a *MissedError once and goes on after the gap. After Close
// of the bus it returns ErrClosed when all remembered events have been read.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		e, wake, err := s.try()
		if wake == nil {
			return e, err
		}
		select {
		case <-ctx.Done():
			return Event{}, ctx.Err()
		case <-wake:
		}
	}
}

// try returns an event or error, or the channel to wait on.
func (s *Subscription) try() (Event, <-chan struct{}, error) {
	b := s.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	oldest := b.oldest()
	switch {
	case s.last == 0:
		s.last = oldest - 1
	case s.last >= b.next, s.last < oldest-1:
		missed := &MissedError{After: s.last, Next: oldest}
		s.last = oldest - 1
		return Event{}, nil, missed
	}
	if s.last+1 == b.next {
		if b.closed {
			return Event{}, nil, ErrClosed
		}
		return Event{}, b.wake, nil
	}
	s.last++
	return b.ring[s.last%uint64(len(b.ring))], nil, nil
}
