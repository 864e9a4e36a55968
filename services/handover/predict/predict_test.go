package predict

import (
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func place(n int) network.PortRef {
	return network.PortRef{Switch: openflow.DatapathID(n), Port: 1}
}

func circle(n int, x, y, r float64) Cell {
	return Cell{Name: string(rune('a' - 1 + n)), Place: place(n), Area: Area{Centre: Point{x, y}, Radius: r}}
}

func coverage(t interface{ Fatal(...any) }, cells ...Cell) *Coverage {
	c, err := NewCoverage(cells)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// road returns a row of cells of 300 m radius every 500 m along the X axis.
func road(t interface{ Fatal(...any) }) *Coverage {
	return coverage(t, circle(1, 0, 0, 300), circle(2, 500, 0, 300), circle(3, 1000, 0, 300))
}

func TestAlongARoad(t *testing.T) {
	// 20 m/s eastwards from the first mast: into the second cell at 200 m, that is
	// after 10 s, out of the first after 15 s, out of the second after 40 s.
	m := Motion{Speed: 20, Heading: 90, Time: noon}
	const setup = 300 * time.Millisecond
	c, err := road(t).Predict(m, place(1), Choice{}, setup, noon, Options{Margin: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got time.Time, after time.Duration) {
		t.Helper()
		if d := got.Sub(noon) - after; d.Abs() > time.Millisecond {
			t.Errorf("%s after %v, want %v", what, got.Sub(noon), after)
		}
	}
	if c.Next != place(2) || c.Name != "b" || c.Prepare {
		t.Errorf("%+v", c)
	}
	near("enter", c.Enter, 10*time.Second)
	near("leave", c.Leave, 15*time.Second)
	near("prepare", c.PrepareAt, 9500*time.Millisecond)
	if d := c.Stay - 25*time.Second; d.Abs() > time.Millisecond {
		t.Errorf("stay %v", c.Stay)
	}
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{5 * time.Second, false}, {9400 * time.Millisecond, false}, {9600 * time.Millisecond, true}, {12 * time.Second, true}} {
		got, err := road(t).Predict(m, place(1), Choice{}, setup, noon.Add(step.after), Options{MaxAge: time.Minute, Margin: 200 * time.Millisecond})
		if err != nil || got.Prepare != step.want || got.Next != place(2) {
			t.Errorf("after %v: %+v, %v", step.after, got, err)
		}
	}
}

func TestNothingToPredict(t *testing.T) {
	for name, m := range map[string]Motion{
		"standing":               {Time: noon},
		"leaving beyond horizon": {Speed: 1, Heading: 90, Time: noon},
		"into the void":          {Speed: 30, Heading: 270, Time: noon},
	} {
		c, err := road(t).Predict(m, place(1), Choice{}, 0, noon, Options{})
		if err != nil || !c.None() || c.Prepare {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

func TestGap(t *testing.T) {
	cells := coverage(t, circle(1, 0, 0, 100), circle(2, 400, 0, 100))
	c, err := cells.Predict(Motion{Speed: 20, Heading: 90, Time: noon}, place(1), Choice{}, 0, noon, Options{})
	if err != nil || c.Next != place(2) || !c.Enter.After(c.Leave) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestCoveredBeforeGap(t *testing.T) {
	// The third cell is crossed for longer, but only after a gap.
	cells := coverage(t, circle(1, 0, 0, 100), circle(2, 150, 0, 100), circle(3, 2000, 0, 1000))
	c, err := cells.Predict(Motion{Speed: 30, Heading: 90, Time: noon}, place(1), Choice{}, 0, noon, Options{})
	if err != nil || c.Next != place(2) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestUnattachedInsideACell(t *testing.T) {
	c, err := road(t).Predict(Motion{Time: noon}, network.PortRef{}, Choice{}, time.Second, noon, Options{})
	if err != nil || c.Next != place(1) || !c.Prepare || c.Enter != noon {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestAccuracyPreparesEarlier(t *testing.T) {
	sure := Motion{Speed: 20, Heading: 90, Time: noon}
	vague := sure
	vague.Accuracy = 40
	a, errA := road(t).Predict(sure, place(1), Choice{}, 0, noon, Options{})
	b, errB := road(t).Predict(vague, place(1), Choice{}, 0, noon, Options{})
	if errA != nil || errB != nil || a.PrepareAt.Sub(b.PrepareAt) != 2*time.Second {
		t.Errorf("%v, %v: %v %v", a.PrepareAt, b.PrepareAt, errA, errB)
	}
}

func TestPreparingIsKept(t *testing.T) {
	// A report that delays the crossing does not end the preparation.
	before := Choice{Next: place(2), Prepare: true}
	c, err := road(t).Predict(Motion{Speed: 20, Heading: 90, Time: noon}, place(1), before, 0, noon, Options{})
	if err != nil || !c.Prepare {
		t.Errorf("%+v, %v", c, err)
	}
	before.Next = place(3)
	c, err = road(t).Predict(Motion{Speed: 20, Heading: 90, Time: noon}, place(1), before, 0, noon, Options{})
	if err != nil || c.Prepare {
		t.Errorf("preparing another place was kept: %+v, %v", c, err)
	}
}

// A fork has two cells beyond the first, north and south of the line of movement. A heading that
// varies little must not change the prediction with each report.
func TestHysteresis(t *testing.T) {
	cells := coverage(t, circle(1, 0, 0, 300), circle(2, 500, 150, 300), circle(3, 500, -150, 300))
	changes := 0
	var last Choice
	for i := range 100 {
		wobble := 2 * math.Sin(float64(i)*1.7)
		m := Motion{Speed: 20, Heading: 90 + wobble, Time: noon}
		c, err := cells.Predict(m, place(1), last, 0, noon, Options{})
		if err != nil || c.None() {
			t.Fatal(c, err)
		}
		if i > 0 && c.Next != last.Next {
			changes++
		}
		last = c
	}
	if changes != 0 {
		t.Errorf("the prediction changed %d times", changes)
	}
	// A real turn changes it.
	turned := 110.0
	if last.Next == place(3) {
		turned = 70
	}
	c, err := cells.Predict(Motion{Speed: 20, Heading: turned, Time: noon}, place(1), last, 0, noon, Options{})
	if err != nil || c.Next == last.Next {
		t.Errorf("after a turn: %+v, %v", c, err)
	}
}

func TestRefusals(t *testing.T) {
	nan := math.NaN()
	good := Motion{Speed: 1, Heading: 1, Time: noon}
	for _, c := range []struct {
		name string
		edit func(*Motion)
		want string
	}{
		{"place that is none", func(m *Motion) { m.At.X = nan }, "finite"},
		{"place beyond all", func(m *Motion) { m.At.Y = 1e9 }, "at most"},
		{"negative speed", func(m *Motion) { m.Speed = -1 }, "speed"},
		{"speed that is none", func(m *Motion) { m.Speed = nan }, "speed"},
		{"speed of a rocket", func(m *Motion) { m.Speed = 8000 }, "speed"},
		{"heading past the circle", func(m *Motion) { m.Heading = 361 }, "heading"},
		{"heading that is none", func(m *Motion) { m.Heading = nan }, "heading"},
		{"negative accuracy", func(m *Motion) { m.Accuracy = -1 }, "accuracy"},
		{"no time", func(m *Motion) { m.Time = time.Time{} }, "no time"},
		{"old report", func(m *Motion) { m.Time = noon.Add(-time.Minute) }, "old"},
		{"report from the future", func(m *Motion) { m.Time = noon.Add(time.Minute) }, "future"},
	} {
		m := good
		c.edit(&m)
		got, err := road(t).Predict(m, place(1), Choice{}, 0, noon, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || !got.None() {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	if _, err := road(t).Predict(good, place(1), Choice{}, -1, noon, Options{}); err == nil {
		t.Error("a negative set-up time was taken")
	}
}

func TestCoverageRefusals(t *testing.T) {
	square := []Point{{0, 0}, {10, 0}, {10, 10}, {0, 10}}
	for _, c := range []struct {
		name  string
		cells []Cell
		want  string
	}{
		{"no place", []Cell{{Area: Area{Radius: 1}}}, "no place"},
		{"place twice", []Cell{circle(1, 0, 0, 1), circle(1, 5, 5, 1)}, "is that of"},
		{"no area", []Cell{{Place: place(1)}}, "radius"},
		{"radius that is none", []Cell{circle(1, 0, 0, math.NaN())}, "radius"},
		{"endless radius", []Cell{circle(1, 0, 0, math.Inf(1))}, "radius"},
		{"centre that is none", []Cell{circle(1, math.Inf(1), 0, 1)}, "finite"},
		{"circle and polygon", []Cell{{Place: place(1), Area: Area{Radius: 1, Polygon: square}}}, "one of the two"},
		{"line", []Cell{{Place: place(1), Area: Area{Polygon: square[:2]}}}, "3 to"},
		{"flat", []Cell{{Place: place(1), Area: Area{Polygon: []Point{{0, 0}, {5, 5}, {9, 9}}}}}, "surface"},
		{"point twice", []Cell{{Place: place(1), Area: Area{Polygon: []Point{{0, 0}, {0, 0}, {9, 0}, {9, 9}}}}}, "twice"},
		{"bow tie", []Cell{{Place: place(1), Area: Area{Polygon: []Point{{0, 0}, {10, 10}, {10, 0}, {0, 12}}}}}, "cross"},
	} {
		if _, err := NewCoverage(c.cells); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// star draws a polygon that does not cross itself, with as many corners as wanted.
func star(t *rapid.T) Area {
	n := rapid.IntRange(3, 12).Draw(t, "corners")
	x, y := rapid.Float64Range(-500, 500).Draw(t, "x"), rapid.Float64Range(-500, 500).Draw(t, "y")
	var a Area
	for i := range n {
		r := rapid.Float64Range(50, 400).Draw(t, "radius")
		phi := 2 * math.Pi * float64(i) / float64(n)
		a.Polygon = append(a.Polygon, Point{x + r*math.Cos(phi), y + r*math.Sin(phi)})
	}
	return a
}

func anyArea(t *rapid.T) Area {
	if rapid.Bool().Draw(t, "circle") {
		return Area{
			Centre: Point{rapid.Float64Range(-500, 500).Draw(t, "x"), rapid.Float64Range(-500, 500).Draw(t, "y")},
			Radius: rapid.Float64Range(1, 400).Draw(t, "radius"),
		}
	}
	return star(t)
}

func anyMotion(t *rapid.T) Motion {
	return Motion{
		At:      Point{rapid.Float64Range(-900, 900).Draw(t, "from x"), rapid.Float64Range(-900, 900).Draw(t, "from y")},
		Speed:   rapid.Float64Range(1, 60).Draw(t, "speed"),
		Heading: rapid.Float64Range(0, 360).Draw(t, "heading"), Time: noon,
	}
}

// Contains and transit are compared at random times of a movement.
func TestTransitAgreesWithContains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, m := anyArea(t), anyMotion(t)
		if err := a.check(); err != nil {
			t.Fatal(err)
		}
		spans := a.transit(m.At, m.velocity())
		for i := range 200 {
			s := float64(i) * 0.35
			p := m.After(time.Duration(s * float64(time.Second)))
			inSpan, border := false, false
			for _, x := range spans {
				inSpan = inSpan || s >= x.from && s <= x.to
				border = border || math.Abs(s-x.from) < 1e-6 || math.Abs(s-x.to) < 1e-6
			}
			if !border && inSpan != a.Contains(p) {
				t.Fatalf("after %v s at %v: in %v is %v, contained %v", s, p, spans, inSpan, a.Contains(p))
			}
		}
	})
}

func TestPredictionHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cells []Cell
		for i := range rapid.IntRange(2, 8).Draw(t, "cells") {
			cells = append(cells, Cell{Place: place(i + 1), Area: anyArea(t)})
		}
		cov, m := coverage(t, cells...), anyMotion(t)
		current := place(rapid.IntRange(1, len(cells)).Draw(t, "current"))
		setup := time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "setup"))
		c, err := cov.Predict(m, current, Choice{}, setup, noon, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c.None() {
			if c.Prepare {
				t.Fatal("prepares nothing")
			}
			return
		}
		checkChoice(t, cov, m, current, setup, c)
	})
}

func checkChoice(t *rapid.T, cov *Coverage, m Motion, current network.PortRef, setup time.Duration, c Choice) {
	if c.Next == current {
		t.Fatal("predicts where the device is")
	}
	area := func(p network.PortRef) Area {
		for _, cell := range cov.cells {
			if cell.Place == p {
				return cell.Area
			}
		}
		t.Fatalf("no cell %v", p)
		return Area{}
	}
	inside := m.After(max(c.Enter.Sub(noon), c.Leave.Sub(noon)) + c.Stay/2)
	if !area(c.Next).Contains(inside) {
		t.Fatalf("halfway through its stay it is not in the next cell: %+v", c)
	}
	if half := c.Leave.Sub(noon) / 2; half > time.Millisecond && !area(current).Contains(m.After(half)) {
		t.Fatalf("before it leaves it is not in the present cell: %+v", c)
	}
	if want := c.Enter.Add(-setup - 200*time.Millisecond); c.PrepareAt != want || c.Prepare != !want.After(noon) {
		t.Fatalf("prepare at %v (%v), want %v", c.PrepareAt, c.Prepare, want)
	}
	// No cell that covers it when it leaves would keep it longer.
	for _, other := range cov.cells {
		if other.Place == current || other.Place == c.Next {
			continue
		}
		stays := true
		for i := range 20 {
			at := m.After(c.Leave.Sub(noon) + time.Millisecond + (c.Stay+time.Second)*time.Duration(i)/19)
			stays = stays && other.Area.Contains(at)
		}
		gap := c.Enter.After(c.Leave)
		if stays && !gap && convex(other.Area) {
			t.Fatalf("cell %v keeps it longer than %+v", other.Place, c)
		}
	}
}

// convex reports whether a line between any two points of the area lies in it.
func convex(a Area) bool { return len(a.Polygon) <= 3 }

// The faster the device, the farther from the next cell it is when preparing begins: the distance
// is what it travels in the set-up time.
func TestLeadIsTravelledDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speed := rapid.Float64Range(10, 100).Draw(t, "speed")
		setup := time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "setup"))
		c, err := road(t).Predict(Motion{Speed: speed, Heading: 90, Time: noon}, place(1), Choice{}, setup, noon, Options{Margin: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		distance := c.Enter.Sub(c.PrepareAt).Seconds() * speed
		if math.Abs(distance-speed*setup.Seconds()) > 1e-3 {
			t.Fatalf("%v m before the cell at %v m/s with %v of set-up", distance, speed, setup)
		}
	})
}
