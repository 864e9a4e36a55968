package flowsim

import (
	"math"
	"testing"
)

// ways is a Router with given paths, which records its calls.
type ways struct {
	ways  [][][]int
	ended []int
	read  func(s *Sim, now float64)
}

func (w *ways) Route(flow, subflow int, _ float64) []int {
	if subflow >= len(w.ways[flow]) {
		return nil
	}
	return w.ways[flow][subflow]
}

func (w *ways) Ended(flow int, _ float64) { w.ended = append(w.ended, flow) }
func (w *ways) Read(s *Sim, now float64)  { w.read(s, now) }

// TestRun compares ends with those that were computed by hand.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		name     string
		flows    []Flow
		ways     [][][]int
		subflows int
		coupled  bool
		want     []float64
	}{
		{"alone", []Flow{{2, 3}}, [][][]int{{{0}}}, 1, false, []float64{5}},
		// The first has 1 alone, then half until the second has ended, then 1 again.
		{"one comes and goes", []Flow{{0, 10}, {4, 2}}, [][][]int{{{0}}, {{0}}}, 1, false, []float64{12, 8}},
		// The rate is 1 until it has carried 1, then 2 until it has carried 2, then 3.
		{"three ways", []Flow{{0, 8}}, [][][]int{{{0}, {1}, {2}}}, 3, false, []float64{3.5}},
		// It has one subflow, although there are further paths.
		{"one of three ways", []Flow{{0, 8}}, [][][]int{{{0}, {1}, {2}}}, 1, false, []float64{8}},
		// It ends before it has carried the threshold.
		{"small", []Flow{{0, 0.5}}, [][][]int{{{0}, {1}}}, 2, false, []float64{0.5}},
		// A further subflow on the same link as the first adds nothing for a single flow.
		{"collision", []Flow{{0, 4}}, [][][]int{{{0}, {0}}}, 2, false, []float64{4}},
		// The second further subflow begins although the first did not.
		{"one is missing", []Flow{{0, 6}}, [][][]int{{{0}, nil, {2}}}, 3, false, []float64{4}},
		// From 1 on the first flow has two subflows on the link where the second has one: 2/3 and
		// 1/3, or half each if its two share one weight.
		{"two beside one", []Flow{{0, 5}, {1, 1}}, [][][]int{{{0}, {0}}, {{0}}}, 2, false, []float64{6, 4}},
		{"two as one", []Flow{{0, 5}, {1, 1}}, [][][]int{{{0}, {0}}, {{0}}}, 2, true, []float64{6, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &ways{ways: c.ways}
			ends := Run(Options{Capacity: []float64{1, 1, 1}, Flows: c.flows, Router: w, Subflows: c.subflows, Coupled: c.coupled, Threshold: 1})
			for i, want := range c.want {
				if math.Abs(ends[i]-want) > 1e-9 {
					t.Errorf("flow %d has ended at %v, want %v", i, ends[i], want)
				}
			}
			if len(w.ended) != len(c.flows) {
				t.Errorf("ends were told of flows %v", w.ended)
			}
		})
	}
}

// TestRead checks that a reading knows what was carried until then, and can move a subflow.
func TestRead(t *testing.T) {
	w := &ways{ways: [][][]int{{{0}}, {{0}}}}
	readings := 0
	w.read = func(s *Sim, now float64) {
		if readings++; readings > 1 {
			return
		}
		if got := s.LinkCarried(0); math.Abs(got-2) > 1e-9 {
			t.Errorf("until %v the link has carried %v, want 2", now, got)
		}
		if got, ok := s.Carried(1, 0); !ok || math.Abs(got-0.5) > 1e-9 {
			t.Errorf("until %v the second flow has carried %v, want 0.5", now, got)
		}
		if _, ok := s.Carried(1, 1); ok {
			t.Error("a subflow that there is not has carried something")
		}
		s.Move(1, 0, []int{1})
	}
	ends := Run(Options{Capacity: []float64{1, 1}, Flows: []Flow{{0, 4.5}, {1, 4.5}}, Router: w, Subflows: 1, Interval: 2})
	// The first has 1, then 1/2 for a second, then 1. The second has 1/2, then 1.
	if math.Abs(ends[0]-5) > 1e-9 || math.Abs(ends[1]-6) > 1e-9 {
		t.Errorf("they ended at %v, want 5 and 6", ends)
	}
	if readings != 2 {
		t.Errorf("%d readings in 6 s, want 2", readings)
	}
}
