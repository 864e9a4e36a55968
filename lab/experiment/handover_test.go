package experiment

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestModelOfMoves(t *testing.T) {
	ms := time.Millisecond
	p := latencies{root: 20 * ms, core: 5 * ms, edge: 1 * ms, link: 2 * ms, radio: 3 * ms}
	cases := []struct {
		move              modelMove
		formula, one, two time.Duration
	}{
		// Both radio directions take 2 x 3, and the controller 1. L of the edge: max(5+2, 1). With
		// two radios the join is prepared while the edge is written: max(10, 2), then 5+2.
		{modelMoves[0], 14 * ms, 14 * ms, (7 + 10 + 5 + 2) * ms},
		// L of the edge: 20, then 22 at the core, then 24.
		{modelMoves[1], 31 * ms, 31 * ms, (7 + 40 + 20 + 4) * ms},
	}
	for _, c := range cases {
		if got := p.formula(c.move); got != c.formula {
			t.Errorf("%s: formula %v, want %v", c.move.name, got, c.formula)
		}
		if got := p.predict(c.move, 1); got != c.one {
			t.Errorf("%s: with one radio %v, want %v", c.move.name, got, c.one)
		}
		if got := p.predict(c.move, 2); got != c.two {
			t.Errorf("%s: with two radios %v, want %v", c.move.name, got, c.two)
		}
	}
}

func TestScalesOfHandover(t *testing.T) {
	for _, scale := range []Scale{Quick, Normal, Full} {
		if points := modelPoints(scale); len(points) < 2 || len(slices.Compact(slices.Clone(points))) != len(points) {
			t.Errorf("%s: points %v", scale, points)
		}
		cases := roamCases(scale)
		if cases[0].name != standingStill || cases[0].policy != "" {
			t.Errorf("%s: the first case is %q, the others are compared with standing still", scale, cases[0].name)
		}
	}
	for _, way := range slices.Concat(peerWays(), handoverWays()) {
		if (way.start == nil) == (way.policy == "") {
			t.Errorf("%s: a way is started by itself or served by a policy", way.name)
		}
	}
}

// TestLegsOfMoves checks that all moves of a case are made, during streams of a bounded length, and
// that each kill of the controller is one move of each device.
func TestLegsOfMoves(t *testing.T) {
	for _, scale := range []Scale{Quick, Normal, Full} {
		for _, c := range movesCases(scale) {
			sum := 0
			for _, n := range c.legs() {
				sum += n
				if n < 1 || n > movesLeg*c.devices || c.killed && n%c.devices > 0 {
					t.Errorf("%s, %s: a leg of %d moves", scale, c.name, n)
				}
			}
			if sum != c.moves {
				t.Errorf("%s, %s: %d moves, want %d", scale, c.name, sum, c.moves)
			}
		}
	}
}

func TestHostOf(t *testing.T) {
	if got := hostOf(netip.MustParsePrefix("10.20.0.0/16"), 0x102); got != netip.MustParseAddr("10.20.1.2") {
		t.Errorf("got %v", got)
	}
}

func TestSortedSeries(t *testing.T) {
	s := Series{X: []float64{3, 1, 2}, Y: []float64{30, 10, 20}}
	if s = sortedSeries(s); !slices.Equal(s.X, []float64{1, 2, 3}) || !slices.Equal(s.Y, []float64{10, 20, 30}) {
		t.Errorf("got %v", s)
	}
}

func TestDeafKeepsTheRest(t *testing.T) {
	if d := lossy(accessLine); d.Loss != 1 || d.Rate != accessLine.Rate || d.Delay != accessLine.Delay || accessLine.Loss != 0 {
		t.Errorf("got %+v of %+v", d, accessLine)
	}
}

// TestDomainsFormulas checks that the formulas for moves between domains are those inside one
// domain plus the latency between the domains, and that each latency follows the point without it,
// to which it is compared.
func TestDomainsFormulas(t *testing.T) {
	for _, scale := range []Scale{Quick, Normal, Full} {
		base := map[[2]time.Duration]domainsPoint{}
		for _, p := range domainsPoints(scale) {
			at := [2]time.Duration{p.control, p.link}
			if p.between == 0 {
				base[at] = p
				continue
			}
			near, ok := base[at]
			if !ok {
				t.Fatalf("%s: %v comes before the point without latency between the domains", scale, p)
			}
			for _, k := range domainsKinds {
				if k.prepared() {
					continue
				}
				// While packets cross a link that takes longer than the changes do, the changes cost nothing.
				if more := p.reached(k) - near.reached(k); more > p.between || more < p.between-p.control {
					t.Errorf("%v, %v: %v more than without latency between the domains", p, k, more)
				}
				if k.radios == 1 && p.silence(k) != p.reached(k) || k.radios == 2 && p.silence(k) != p.arrival() {
					t.Errorf("%v, %v: silence %v, first packet after %v", p, k, p.silence(k), p.reached(k))
				}
			}
		}
	}
}
