package event

import "context"

// Subscription reads a bus from a certain event on. It holds no resources and need not be
// closed. It must be used by one goroutine only.
type Subscription struct {
	bus  *Bus
	last uint64
}

// Subscribe returns a subscription to the events after the identifier. Zero means all remembered
// events; Last() means new events only.
func (b *Bus) Subscribe(after uint64) *Subscription {
	return &Subscription{bus: b, last: after}
}

// Next returns the next event, and waits for it until ctx ends. If events were missed, it
// returns a *MissedError once and continues after the gap. After the bus is closed, it returns
// ErrClosed once all remembered events have been read.
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

// try returns an event or an error, or the channel to wait on.
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
