package pathrate

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestDivide checks that a division is max-min fair, and that a sender that wants little may send as
// much as if it wanted more.
func TestDivide(t *testing.T) {
	all := math.Inf(1)
	for _, c := range []struct {
		name    string
		links   []float64
		senders []Sender
		want    []float64
	}{
		{"alone", []float64{300}, []Sender{{[]int{0}, all}}, []float64{300}},
		{"two that want all", []float64{300}, []Sender{{[]int{0}, all}, {[]int{0}, all}}, []float64{150, 150}},
		{"one wants little", []float64{300}, []Sender{{[]int{0}, all}, {[]int{0}, 10}}, []float64{290, 150}},
		{"two want little", []float64{300}, []Sender{{[]int{0}, all}, {[]int{0}, 10}, {[]int{0}, 30}}, []float64{260, 135, 145}},
		{"nobody wants anything", []float64{300}, []Sender{{[]int{0}, 0}, {[]int{0}, 0}}, []float64{300, 300}},
		{"another link limits one", []float64{300, 50}, []Sender{{[]int{0, 1}, all}, {[]int{0}, all}}, []float64{50, 250}},
		{"a chain", []float64{300, 100}, []Sender{{[]int{0}, all}, {[]int{0, 1}, all}, {[]int{1}, all}}, []float64{250, 50, 50}},
		{"nothing is known of one link", []float64{300, all}, []Sender{{[]int{1}, all}, {[]int{0, 1}, all}}, []float64{all, 300}},
		{"nothing is known", []float64{all}, []Sender{{[]int{0}, all}, {[]int{0}, 5}}, []float64{all, all}},
	} {
		got := Divide(c.links, c.senders)
		for i := range got {
			if got[i] != c.want[i] && !(math.Abs(got[i]-c.want[i]) < 0.01*c.want[i]) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
				break
			}
		}
	}
}

// TestDivideAny checks for any senders that those that want all fill no link beyond its capacity,
// and that each of them is on a link that is full and on which nobody has more.
func TestDivideAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		links := rapid.SliceOfN(rapid.Float64Range(1, 1e9), 1, 5).Draw(t, "links")
		senders := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Sender {
			s := Sender{Links: rapid.SliceOfNDistinct(rapid.IntRange(0, len(links)-1), 1, len(links), rapid.ID[int]).Draw(t, "path"), Wants: math.Inf(1)}
			if rapid.Bool().Draw(t, "wants little") {
				s.Wants = rapid.Float64Range(0, 1e9).Draw(t, "wants")
			}
			return s
		}), 1, 30).Draw(t, "senders")
		given := Divide(links, senders)
		load, most := make([]float64, len(links)), make([]float64, len(links))
		for i, s := range senders {
			sent := min(given[i], s.Wants)
			for _, l := range s.Links {
				load[l] += sent
				most[l] = max(most[l], sent)
			}
		}
		for l := range links {
			if load[l] > links[l]*1.001 {
				t.Fatalf("link %d carries %v of %v", l, load[l], links[l])
			}
		}
		for i, s := range senders {
			limited := s.Wants <= given[i]*1.001
			for _, l := range s.Links {
				limited = limited || load[l] > links[l]*0.999 && min(given[i], s.Wants) > most[l]*0.999
			}
			if !limited {
				t.Fatalf("sender %d may have more than %v", i, given[i])
			}
		}
	})
}
