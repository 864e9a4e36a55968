package content

import (
	"testing"

	"pgregory.net/rapid"
)

// The number of pieces in flight never exceeds the limit, whichever were taken and which not.
func TestRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const all = 20
		r := newAdaptiveLimit(minLimit, all)
		inside, most := 0, minLimit
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				if got, want := r.free.TryAcquire(1), inside < most; got != want {
					t.Fatalf("one more gets in: %v, with %d inside of %d", got, inside, most)
				} else if got {
					inside++
				}
			},
			"leave": func(t *rapid.T) {
				if inside == 0 {
					t.Skip("nobody is inside")
				}
				taken := rapid.Bool().Draw(t, "taken")
				r.release(taken)
				if inside--; taken && most < all {
					most++
				}
			},
			"halve": func(*rapid.T) {
				r.halve()
				most = max(most/2, minLimit)
			},
			"decrease": func(*rapid.T) {
				r.decrease()
				most = max(most-1, minLimit)
			},
		})
	})
}
