package cinema

import (
	"slices"
	"testing"
)

// TestViewersInPages checks the list of viewers in pages.
func TestViewersInPages(t *testing.T) {
	b := newBench(t)
	for n := range 5 {
		b.mustWant([]*fakeEgress{b.east, b.west}[n%2], n, uint16(6000+n), "a")
	}
	var seen []string
	for after := ""; ; {
		some := get[[]ViewerInfo](b, "viewers?limit=2&after="+after)
		if len(some) == 0 {
			break
		}
		for _, v := range some {
			after = v.Gateway + "/" + v.ID
			seen = append(seen, after)
		}
	}
	if want := []string{"east/" + id(0), "east/" + id(2), "east/" + id(4), "west/" + id(1), "west/" + id(3)}; !slices.Equal(seen, want) {
		t.Errorf("%v, want %v", seen, want)
	}
}
