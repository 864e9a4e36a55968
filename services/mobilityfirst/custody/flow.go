package custody

import "slices"

// maxGaps is how many gaps a flow remembers in the numbers that were taken: behind the lowest of more,
// nothing is missing.
const maxGaps = 64

// State is what is known of a chunk of a flow.
type State int

// The states.
const (
	// New is for one that has not come.
	New State = iota
	// Given is for one that its receiver was given, and has not taken.
	Given
	// Taken is for one that its receiver has taken.
	Taken
)

// Flow is what is known at their destination of the chunks of one flow, so that each is taken once,
// however often and by whichever ways it comes. The zero value is one of which nothing has come. It may
// not be used by two goroutines at once.
type Flow struct {
	taken []span // in order, apart from each other
	given map[uint64]struct{}
}

// span are the numbers from first to last.
type span struct{ first, last uint64 }

// State is that of a number.
func (f *Flow) State(number uint64) State {
	if _, is := f.find(number); is {
		return Taken
	}
	if _, is := f.given[number]; is {
		return Given
	}
	return New
}

// find is where a number stands among those that were taken, or the span before which it would.
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

// Give notes that the receiver was given a chunk.
func (f *Flow) Give(number uint64) {
	if f.given == nil {
		f.given = map[uint64]struct{}{}
	}
	f.given[number] = struct{}{}
}

// Return notes that it has not taken it: it may be given again.
func (f *Flow) Return(number uint64) { delete(f.given, number) }

// Take notes that it has.
func (f *Flow) Take(number uint64) {
	delete(f.given, number)
	i, is := f.find(number)
	if is {
		return
	}
	before := i > 0 && f.taken[i-1].last+1 == number
	behind := i < len(f.taken) && f.taken[i].first-1 == number
	switch {
	case before && behind:
		f.taken[i-1].last = f.taken[i].last
		f.taken = slices.Delete(f.taken, i, i+1)
	case before:
		f.taken[i-1].last = number
	case behind:
		f.taken[i].first = number
	default:
		f.taken = slices.Insert(f.taken, i, span{number, number})
	}
	if len(f.taken) > maxGaps+1 {
		f.taken[1].first = 0
		f.taken = slices.Delete(f.taken, 0, 1)
	}
}

// Idle says whether nothing was given that was not taken.
func (f *Flow) Idle() bool { return len(f.given) == 0 }
