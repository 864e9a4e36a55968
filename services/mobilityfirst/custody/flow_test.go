package custody

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever comes, again and in any order, each chunk is taken once at most, and those behind all of whose
// gaps are remembered are taken at least once.
func TestFlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f Flow
		taken, given := map[uint64]bool{}, map[uint64]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"a chunk comes": func(t *rapid.T) {
				number := rapid.Uint64Range(1, 40).Draw(t, "number")
				want := New
				switch {
				case taken[number]:
					want = Taken
				case given[number]:
					want = Delivered
				}
				if got := f.State(number); got != want {
					t.Fatalf("%d is %v, want %v", number, got, want)
				}
				if want == New {
					f.Deliver(number)
					given[number] = true
				}
			},
			"one is taken": func(t *rapid.T) {
				if number := rapid.Uint64Range(1, 40).Draw(t, "number"); given[number] {
					f.Take(number)
					delete(given, number)
					taken[number] = true
				}
			},
			"one goes back": func(t *rapid.T) {
				if number := rapid.Uint64Range(1, 40).Draw(t, "number"); given[number] {
					f.Return(number)
					delete(given, number)
				}
			},
			"": func(t *rapid.T) {
				if f.Idle() != (len(given) == 0) {
					t.Fatalf("idle: %v, with %d given", f.Idle(), len(given))
				}
				for i := 1; i < len(f.taken); i++ {
					if f.taken[i].first <= f.taken[i-1].last+1 {
						t.Fatalf("spans %v", f.taken)
					}
				}
			},
		})
	})
}

// A flow with gaps without end takes no memory without end, and none of its chunks twice.
func TestGapsAreBounded(t *testing.T) {
	var f Flow
	for number := uint64(2); number <= 2000; number += 2 {
		f.Deliver(number)
		f.Take(number)
	}
	if len(f.taken) > maxGaps+1 {
		t.Errorf("%d spans", len(f.taken))
	}
	for number := uint64(2); number <= 2000; number += 2 {
		if f.State(number) != Taken {
			t.Errorf("%d is not taken", number)
		}
	}
	if f.State(1) != Taken || f.State(1999) != New || f.State(2001) != New {
		t.Errorf("1 is %v, 1999 %v, 2001 %v", f.State(1), f.State(1999), f.State(2001))
	}
}
