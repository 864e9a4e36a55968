package policy

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

func up(name string, edit ...func(*Candidate)) Candidate {
	c := Candidate{Name: name, Link: true}
	for _, e := range edit {
		e(&c)
	}
	return c
}

func signal(dbm int) func(*Candidate) { return func(c *Candidate) { c.Signal = dbm } }
func cost(n int) func(*Candidate)     { return func(c *Candidate) { c.Cost = n } }
func barred(c *Candidate)             { c.Barred = "no DHCP server answers" }
func down(c *Candidate)               { c.Link = false }
func silent(c *Candidate)             { c.Silent = true }

// revived is barred, and answers again.
func revived(c *Candidate) { c.Barred, c.LastResort, c.Answers = "it was silent", true, true }

func loss(share float64) func(*Candidate) {
	return func(c *Candidate) { c.Loss, c.Probes = share, 20 }
}

// rules returns the rules of most tests.
func rules(criteria ...Criterion) Rules {
	return Rules{
		Criteria: criteria, MinSignal: -80, MaxLoss: 0.3, SignalMargin: 6, LossMargin: 0.1,
		Dwell: 3 * time.Second, Hold: 10 * time.Second,
	}
}

func TestFirstChoice(t *testing.T) {
	for _, c := range []struct {
		name       string
		rules      Rules
		candidates []Candidate
		use, why   string
	}{
		{"nothing at all", rules(Order), nil, "", "no interface"},
		{"no link anywhere", rules(Order), []Candidate{up("a", down), up("b", down)}, "", "no interface"},
		{"all barred", rules(Order), []Candidate{up("a", barred), up("b", down)}, "", "no interface"},
		{"first in order", rules(Order), []Candidate{up("a"), up("b")}, "a", "first choice"},
		{"first with a link", rules(Order), []Candidate{up("a", down), up("b")}, "b", "first choice"},
		{"cheapest", rules(Cost), []Candidate{up("a", cost(10)), up("b", cost(1))}, "b", "first choice"},
		{"strongest", rules(Signal), []Candidate{up("a", signal(-70)), up("b", signal(-50))}, "b", "first choice"},
		{"within the margin the order decides", rules(Signal), []Candidate{up("a", signal(-55)), up("b", signal(-50))}, "a", "first choice"},
		{"a cable has no signal to compare", rules(Signal), []Candidate{up("a"), up("b", signal(-40))}, "a", "first choice"},
		{"cost before signal", rules(Cost, Signal), []Candidate{up("a", cost(5), signal(-40)), up("b", signal(-70))}, "b", "first choice"},
		{"signal where cost is equal", rules(Cost, Signal), []Candidate{up("a", cost(5), signal(-70)), up("b", cost(5), signal(-40))}, "b", "first choice"},
		{"least loss", rules(Loss), []Candidate{up("a", loss(0.25)), up("b", loss(0))}, "b", "first choice"},
		{"too weak to enter", rules(Order), []Candidate{up("a", signal(-78)), up("b", signal(-70))}, "b", "first choice"},
		{"weak is better than none", rules(Order), []Candidate{up("a", down), up("b", signal(-95))}, "b", "first choice"},
		{"a barred one that answers is better than none", rules(Order), []Candidate{up("a", down), up("b", revived), up("c", barred)}, "b", "first choice"},
		{"a barred one without a link is no resort", rules(Order), []Candidate{up("a", revived, down)}, "", "no interface"},
		{"a weak one comes before a barred one", rules(Order), []Candidate{up("a", revived), up("b", signal(-95))}, "b", "first choice"},
		{"without bounds nothing is weak", Rules{}, []Candidate{up("a", signal(-99), loss(1)), up("b")}, "a", "first choice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Selector{Rules: c.rules}
			got := s.Choose(Now{Time: start}, c.candidates)
			if got.Use != c.use || !strings.Contains(got.Why, c.why) {
				t.Errorf("got %+v, want %q because %q", got, c.use, c.why)
			}
		})
	}
}

// A step is a choice at a time, with the expected result.
type step struct {
	at         float64
	candidates []Candidate
	use        string
	again      float64 // 0: never
}

func TestHysteresis(t *testing.T) {
	better := []Candidate{up("a", cost(9)), up("b", cost(1))}
	worse := []Candidate{up("a", cost(9)), up("b", cost(10))}
	for _, c := range []struct {
		name  string
		since float64
		wish  string
		rules Rules
		steps []step
	}{
		{"better has to last", -100, "", rules(Cost), []step{
			{0, better, "a", 3}, {1, better, "a", 3}, {2.9, better, "a", 3}, {3, better, "b", 0},
		}},
		{"what lapses begins anew", -100, "", rules(Cost), []step{
			{0, better, "a", 3}, {2, worse, "a", 0}, {2.5, better, "a", 5.5}, {5, better, "a", 5.5}, {5.5, better, "b", 0},
		}},
		{"not soon after a move", 0, "", rules(Cost), []step{
			{1, better, "a", 10}, {9, better, "a", 10}, {10, better, "b", 0},
		}},
		{"another challenger begins anew", -100, "", rules(Cost), []step{
			{0, []Candidate{up("a", cost(9)), up("b", cost(5)), up("c", cost(9))}, "a", 3},
			{2, []Candidate{up("a", cost(9)), up("b", cost(5)), up("c", cost(1))}, "a", 5},
			{5, []Candidate{up("a", cost(9)), up("b", cost(5)), up("c", cost(1))}, "c", 0},
		}},
		{"a lost link is left at once", 0, "", rules(Cost), []step{
			{0.1, []Candidate{up("a", down), up("b", cost(50))}, "b", 0},
		}},
		{"a barred one is left at once", 0, "", rules(Cost), []step{
			{0.1, []Candidate{up("a", barred), up("b", cost(50))}, "b", 0},
		}},
		{"the only link is lost, and a barred one answers", 0, "", rules(Order), []step{
			{0.1, []Candidate{up("a", down), up("b", revived)}, "b", 0},
		}},
		{"a silent one is left for a barred one that answers", 0, "", rules(Order), []step{
			{0.1, []Candidate{up("a", silent), up("b", barred)}, "a", 0},
			{0.2, []Candidate{up("a", silent), up("b", revived)}, "b", 0},
		}},
		{"what works is not left for a barred one", -100, "", rules(Cost), []step{
			{0.1, []Candidate{up("a", cost(9)), up("b", cost(1), revived)}, "a", 0},
		}},
		{"a signal below the bound is left at once", 0, "", rules(Signal), []step{
			{0.1, []Candidate{up("a", signal(-81)), up("b", signal(-70))}, "b", 0},
		}},
		{"but not for one that is just above it", 0, "", rules(Signal), []step{
			{0.1, []Candidate{up("a", signal(-81)), up("b", signal(-79))}, "a", 0},
		}},
		{"losses beyond the bound are left at once", 0, "", rules(Order), []step{
			{0.1, []Candidate{up("a", loss(0.35)), up("b", loss(0.1))}, "b", 0},
		}},
		{"few probes mean nothing", 0, "", rules(Order), []step{
			{0.1, []Candidate{up("a", func(c *Candidate) { c.Loss, c.Probes = 1, 4 }), up("b")}, "a", 0},
		}},
		{"no link anywhere", 0, "", rules(Order), []step{
			{0.1, []Candidate{up("a", down), up("b", down)}, "", 0},
		}},
		{"a wish at once", 0, "b", rules(Order), []step{
			{0.1, []Candidate{up("a"), up("b")}, "b", 0},
		}},
		{"a wish for a weak one", 0, "b", rules(Order), []step{
			{0.1, []Candidate{up("a"), up("b", signal(-99))}, "b", 0},
		}},
		{"a wish for what is in use", -100, "a", rules(Cost), []step{
			{0, better, "a", 0}, {100, better, "a", 0},
		}},
		{"a wish that cannot be", -100, "b", rules(Order), []step{
			{0.1, []Candidate{up("a"), up("b", down)}, "a", 0},
			{0.2, []Candidate{up("a"), up("b", barred)}, "a", 0},
			{0.3, []Candidate{up("a"), up("b")}, "b", 0},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Selector{Rules: c.rules}
			for _, x := range c.steps {
				got := s.Choose(Now{Time: at(x.at), Current: "a", Since: at(c.since), Requested: c.wish}, x.candidates)
				var again time.Time
				if x.again != 0 {
					again = at(x.again)
				}
				if got.Use != x.use || !got.Again.Equal(again) {
					t.Errorf("after %v s: %+v, want %q, again %v", x.at, got, x.use, again)
				}
			}
		})
	}
}

// Signals that vary by less than the margin never move the device. Whatever happens, the chosen
// interface has a link, and is not barred unless there is nothing else.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rules(rapid.Permutation([]Criterion{Order, Cost, Signal, Loss}).Draw(t, "criteria")...)
		s := Selector{Rules: r}
		current, since, now := "", start, start
		moves := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
			candidates := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Candidate {
				return Candidate{
					Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), Link: rapid.Bool().Draw(t, "link"),
					Signal: rapid.IntRange(-95, -30).Draw(t, "signal"), Loss: rapid.Float64Range(0, 1).Draw(t, "loss"),
					Probes: rapid.IntRange(0, 20).Draw(t, "probes"), Cost: rapid.IntRange(0, 3).Draw(t, "cost"),
					Barred: rapid.SampledFrom([]string{"", "", "barred"}).Draw(t, "barred"), LastResort: rapid.Bool().Draw(t, "last resort"),
				}
			}), 0, 3, func(c Candidate) string { return c.Name }).Draw(t, "candidates")
			got := s.Choose(Now{Time: now, Current: current, Since: since}, candidates)
			can, free := false, false
			for _, c := range candidates {
				free = free || c.Link && c.Barred == ""
			}
			for _, c := range candidates {
				can = can || c.Link && (c.Barred == "" || c.LastResort)
				if c.Name == got.Use && (!c.Link || c.Barred != "" && (free || !c.LastResort)) {
					t.Fatalf("chose %+v", c)
				}
			}
			if can != (got.Use != "") {
				t.Fatalf("chose %q of %+v", got.Use, candidates)
			}
			if !got.Again.IsZero() && !got.Again.After(now) {
				t.Fatalf("choose again at %v, now %v", got.Again, now)
			}
			if got.Use != "" && got.Use != current {
				current, since = got.Use, now
				moves++
			}
		}
	})
}

func TestWaveringSignalsDoNotMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Selector{Rules: rules(Signal)}
		now := start
		for range 50 {
			now = now.Add(5 * time.Second)
			base := rapid.IntRange(-60, -55).Draw(t, "a")
			other := base + rapid.IntRange(-6, 6).Draw(t, "difference")
			got := s.Choose(Now{Time: now, Current: "b", Since: start}, []Candidate{up("b", signal(base)), up("a", signal(other))})
			if got.Use != "b" {
				t.Fatalf("moved from %d dBm to %d dBm", base, other)
			}
		}
	})
}
