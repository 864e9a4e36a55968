package soak

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

func TestASoakCanFail(t *testing.T) {
	now := time.Now()
	reset := failure{load: "a", part: partSOS, kind: testbed.ResetOnRead, began: now, at: now, err: errors.New("it was reset")}
	wrong := failure{load: "a", part: partSOS, kind: testbed.WrongBytes, began: now, at: now, err: errors.New("other bytes")}
	for _, c := range []struct {
		name     string
		failures []failure
		kill     *incident
		checks   []check
		says     string
		faults   bool
	}{
		{"all is well", nil, nil, []check{{"c", true, "fine"}}, "holds   c: fine", false},
		{"a reset", []failure{reset}, nil, nil, "MISSED  every failure is explained by a kill: 1 failed", true},
		{"a reset by a kill", []failure{reset}, &incident{program: agent, part: partSOS, from: now, until: now.Add(time.Second)}, nil, "holds   every failure", false},
		{"wrong bytes at a kill", []failure{wrong}, &incident{program: agent, part: partSOS, from: now, until: now.Add(time.Second)}, nil, "MISSED  every byte is correct", true},
		{"a check", nil, nil, []check{{"c", false, "not so"}}, "MISSED  c: not so", true},
	} {
		var out strings.Builder
		rec := newRecord(&out)
		rec.right("a", partSOS, 1, 10)
		for _, f := range c.failures {
			rec.fail(f)
		}
		if c.kill != nil {
			rec.incidents = append(rec.incidents, *c.kill)
		}
		err := rec.report(c.checks)
		if errors.Is(err, ErrFaults) != c.faults {
			t.Errorf("%s: %v", c.name, err)
		}
		if !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: no %q in\n%s", c.name, c.says, out.String())
		}
	}
	var out strings.Builder
	rec := newRecord(&out)
	rec.fail(reset)
	if err := rec.report(nil); !errors.Is(err, ErrFaults) || !strings.Contains(out.String(), "none of a has succeeded") {
		t.Errorf("a load that never succeeded: %v\n%s", err, out.String())
	}
}

func TestGrowthIsSeen(t *testing.T) {
	series := func(f func(i int) sample) (out []sample) {
		for i := range 30 {
			out = append(out, f(i))
		}
		return out
	}
	flat := series(func(int) sample { return sample{20e6, 60e6} })
	saw := series(func(i int) sample { return sample{20e6 + float64(i%5)*30e6, 60e6} })
	grow := series(func(i int) sample { return sample{20e6 + 5e6*float64(i), 60e6} })
	for _, c := range []struct {
		name  string
		s     []sample
		after float64
		want  bool
	}{{"flat", flat, 40, true}, {"garbage that goes", saw, 40, true}, {"goroutines", flat, 91, false}, {"heap", grow, 40, false}, {"none", nil, 40, false}} {
		g := &growth{
			samples: map[string][]sample{"controller": c.s, "agent x": flat, "agent y": flat},
			before:  map[string]float64{"controller": 40}, after: map[string]float64{"controller": c.after},
		}
		if got := g.checks()[1]; got.holds != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestConnectionsPastAgentsAreSeen(t *testing.T) {
	for _, c := range []struct {
		right, carried int
		want           bool
	}{{100, 100, true}, {100, 91, true}, {100, 80, false}, {0, 0, false}} {
		g := &growth{right: c.right, carried: c.carried}
		if got := g.checks()[0]; got.holds != c.want {
			t.Errorf("%+v", got)
		}
	}
}
