package custody

import "slices"

// maxGaps limits the gaps between taken numbers that a flow remembers. Beyond it the lowest gap
// counts as taken.
const maxGaps = 64

// State is the state of a chunk of a flow.
type State int

// The states of a chunk.
const (
	// New means that the chunk has not been delivered.
	New State = iota
	// Delivered means that the receiver was given the chunk and has not taken it over yet.
	Delivered
	// Taken means that the receiver has taken the chunk over.
	Taken
)

// Flow records the chunks of one flow at their destination, so that each is taken once, however
// often and by whichever paths it arrives. The zero value is a flow without chunks. A Flow may not
// be used by two goroutines at once.
type Flow struct {
	taken     []span // ascending, with gaps between
	delivered map[uint64]struct{}
}

// span is the range of numbers from first to last.
type span struct{ first, last uint64 }

// State returns the state of the chunk with this number.
func (f *Flow) State(number uint64) State {
	if _, ok := f.find(number); ok {
		return Taken
	}
	if _, ok := f.delivered[number]; ok {
		return Delivered
	}
	return New
}

// find returns the index of the span that contains a number, or the index at which its span would
// be inserted, and reports whether it is contained.
func (f *Flow) find(number uint64) (int, bool) {
	return slices.BinarySearchFunc(f.taken, number, func(s span, number uint64) int {
		switch {
		case s.last < number:
			return -1
		case s.first > number:
			return 1
		}
		return 0
	})
}

// Deliver records that the receiver was given a chunk.
func (f *Flow) Deliver(number uint64) {
	if f.delivered == nil {
		f.delivered = map[uint64]struct{}{}
	}
	f.delivered[number] = struct{}{}
}

// Return records that the receiver has not taken the chunk over: it may be delivered again.
func (f *Flow) Return(number uint64) { delete(f.delivered, number) }

// Take records that the receiver has taken the chunk over.
func (f *Flow) Take(number uint64) {
	delete(f.delivered, number)
	i, ok := f.find(number)
	if ok {
		return
	}
	before := i > 0 && f.taken[i-1].last+1 == number
	after := i < len(f.taken) && f.taken[i].first-1 == number
	switch {
	case before && after:
		f.taken[i-1].last = f.taken[i].last
		f.taken = slices.Delete(f.taken, i, i+1)
	case before:
		f.taken[i-1].last = number
	case after:
		f.taken[i].first = number
	default:
		f.taken = slices.Insert(f.taken, i, span{number, number})
	}
	if len(f.taken) > maxGaps+1 {
		f.taken[1].first = 0
		f.taken = slices.Delete(f.taken, 0, 1)
	}
}

// Idle reports whether every delivered chunk has been taken over or returned.
func (f *Flow) Idle() bool { return len(f.delivered) == 0 }
