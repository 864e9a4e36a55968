package wire

import (
	"cmp"
	"slices"
)

// Admission is the decision of Ordered about an arriving chunk.
type Admission int

// The decisions about an arriving chunk.
const (
	Take    Admission = iota // receive it; its reception is now listed for its number
	Replace                  // like Take, in place of an unfinished reception on another connection
	Discard                  // a complete copy exists already: read it and drop it
	Reject                   // its number is beyond those that the sender may use now
)

// Ordered brings the chunks of one direction into order. T is a reception, the state of a
// chunk that is arriving or waiting.
//
// A chunk may arrive twice at the same time if the sender has given up a connection and the
// receiver has not yet. It is not known which of the two receptions will complete. So the one that
// began last is listed for the number meanwhile, and the one that completes first is kept. Ordered
// is not safe for concurrent use.
type Ordered[T comparable] struct {
	next    uint64
	span    uint64
	waiting map[uint64]*slot[T]
}

type slot[T any] struct {
	reception T
	complete  bool
}

// NewOrdered returns an Ordered that admits chunks up to span ahead of the next one.
func NewOrdered[T comparable](span uint64) *Ordered[T] {
	return &Ordered[T]{span: span, waiting: make(map[uint64]*slot[T])}
}

// Next returns the number of the chunk to be passed on next.
func (o *Ordered[T]) Next() uint64 { return o.next }

// Len returns the number of chunks arriving or waiting.
func (o *Ordered[T]) Len() int { return len(o.waiting) }

// Begin decides about chunk number seq. If it returns Take or Replace, reception is listed
// for the number from now on. If it returns Replace, old was listed before, and may still
// complete.
func (o *Ordered[T]) Begin(seq uint64, reception T) (decision Admission, old T) {
	switch {
	case seq < o.next:
		return Discard, old
	case seq-o.next >= o.span:
		return Reject, old
	}
	s := o.waiting[seq]
	switch {
	case s == nil:
		o.waiting[seq] = &slot[T]{reception: reception}
		return Take, old
	case s.complete:
		return Discard, old
	default:
		old, s.reception = s.reception, reception
		return Replace, old
	}
}

// Complete records that reception has received all of chunk seq. kept reports whether reception is
// kept. If another reception was listed for the number, replaced is true and old is that reception.
func (o *Ordered[T]) Complete(seq uint64, reception T) (kept bool, old T, replaced bool) {
	s := o.waiting[seq]
	switch {
	case seq < o.next || (s != nil && s.complete):
		return false, old, false
	case s == nil: // the listed reception was dropped
		o.waiting[seq] = &slot[T]{reception: reception, complete: true}
		return true, old, false
	}
	old, replaced = s.reception, s.reception != reception
	s.reception, s.complete = reception, true
	return true, old, replaced
}

// Drop removes an unfinished reception because its connection was lost. It reports whether the
// reception was listed for its number.
func (o *Ordered[T]) Drop(seq uint64, reception T) bool {
	s := o.waiting[seq]
	if s == nil || s.complete || s.reception != reception {
		return false
	}
	delete(o.waiting, seq)
	return true
}

// Head returns the reception of the next chunk, and reports whether there is one.
func (o *Ordered[T]) Head() (reception T, complete, ok bool) {
	s := o.waiting[o.next]
	if s == nil {
		return reception, false, false
	}
	return s.reception, s.complete, true
}

// Advance moves on to the next chunk. The present head must be complete and have been passed on.
func (o *Ordered[T]) Advance() {
	delete(o.waiting, o.next)
	o.next++
}

// Drain removes and returns all receptions that are arriving or waiting.
func (o *Ordered[T]) Drain() []T {
	out := make([]T, 0, len(o.waiting))
	for _, s := range o.waiting {
		out = append(out, s.reception)
	}
	clear(o.waiting)
	return out
}

// Unconfirmed holds the chunks of one connection that the peer has not confirmed, in the
// order in which they were sent. It is not safe for concurrent use.
type Unconfirmed[T any] struct {
	sent      []T
	head      int
	confirmed uint64
}

// Push adds a chunk whose header is about to be sent.
func (u *Unconfirmed[T]) Push(c T) { u.sent = append(u.sent, c) }

// Len returns the number of chunks that are not confirmed.
func (u *Unconfirmed[T]) Len() int { return len(u.sent) - u.head }

// Confirm takes the count of an Ack frame and returns the chunks that it confirms. ok is false if
// the count has decreased or exceeds the number of sent chunks. The result is valid until the next
// call.
func (u *Unconfirmed[T]) Confirm(count uint64) (done []T, ok bool) {
	if count < u.confirmed || count-u.confirmed > uint64(u.Len()) {
		return nil, false
	}
	n := int(count - u.confirmed)
	u.confirmed = count
	done = u.sent[u.head : u.head+n]
	u.head += n
	if u.head > len(u.sent)/2 && u.head > 64 {
		done = slices.Clone(done)
		u.sent = slices.Delete(u.sent, 0, u.head)
		u.head = 0
	}
	return done, true
}

// Lost removes and returns the chunks that must be sent again after the connection was
// lost.
func (u *Unconfirmed[T]) Lost() []T {
	out := slices.Clone(u.sent[u.head:])
	u.sent, u.head = nil, 0
	return out
}

// SortChunks sorts chunks that have to be sent again by their numbers, so that the chunk for which
// the receiver waits is sent first.
func SortChunks[T any](chunks []T, number func(T) uint64) {
	slices.SortFunc(chunks, func(a, b T) int { return cmp.Compare(number(a), number(b)) })
}
