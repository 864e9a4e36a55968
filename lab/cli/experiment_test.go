package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/lab/experiment"
)

func TestExperimentsAreChosen(t *testing.T) {
	for _, c := range []struct {
		names, only []string
		want        int    // number of experiments
		refused     string // part of the error
	}{
		{names: []string{"sos-short"}, only: []string{"rtt=20ms"}, want: 1},
		{names: []string{"sos-short", "packet-in"}, want: 2},
		{names: []string{"all"}, want: len(experiment.All())},
		{names: []string{"all", "packet-in"}, refused: "selects every"},
		{names: []string{"sos-short", "sos-shrot"}, refused: "sos-shrot"},
		{names: []string{"sos-short", "packet-in"}, only: []string{"rtt=20ms"}, refused: "one at a time"},
		{names: []string{"sos-short"}, only: []string{"color=red"}, refused: "color"},
	} {
		run := experimentRun{scale: "quick", only: c.only}
		chosen, _, err := run.parse(c.names)
		if len(chosen) != c.want && c.refused == "" || (err != nil) != (c.refused != "") {
			t.Errorf("%v: %d experiments, %v, want %d", c.names, len(chosen), err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%v: %v, want something with %q", c.names, err, c.refused)
		}
	}
}

// TestOutcomesAreListedTogether runs one experiment that holds, one that misses a claim, and one
// that fails.
func TestOutcomesAreListedTogether(t *testing.T) {
	outcomes := []outcome{
		{Name: "a", Result: &experiment.Result{Claims: []experiment.Claim{{Text: "at least 2", Result: "3", Met: true}, {Text: "at most 1", Result: "2"}}}},
		{Name: "b", Error: "b: no root"},
	}
	if n := countMissed(outcomes); n != 1 {
		t.Errorf("%d missed, want 1", n)
	}
	var out strings.Builder
	summarize(outcomes, &out)
	const want = "\nholds   a: at least 2: 3\nMISSED  a: at most 1: 2\nFAILED  b: no root\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestMissedClaimFails checks that a missed claim is an error that ends the program with status 1,
// even if another experiment holds. An experiment that tests nothing is an error, too, unless parts
// of it were left out.
func TestMissedClaimFails(t *testing.T) {
	live.Test(t)
	claims := func(name string, met ...bool) experiment.Experiment {
		return experiment.Experiment{Name: name, Title: name, Run: func(context.Context, *experiment.Env) (*experiment.Result, error) {
			r := &experiment.Result{Network: "none"}
			for _, m := range met {
				r.Claims = append(r.Claims, experiment.Claim{Text: "at least 2", Result: "something", Met: m})
			}
			return r, nil
		}}
	}
	for _, c := range []struct {
		all  []experiment.Experiment
		only experiment.Only
		says string
	}{
		{[]experiment.Experiment{claims("a", true)}, nil, ""},
		{[]experiment.Experiment{claims("a", true, false)}, nil, "1 claims were missed"},
		{[]experiment.Experiment{claims("a", false), claims("b", true)}, nil, "1 claims were missed"},
		{[]experiment.Experiment{claims("a", false), claims("b", false)}, nil, "2 claims were missed"},
		{[]experiment.Experiment{claims("a"), claims("b", true)}, nil, "a: no claim was tested"},
		{[]experiment.Experiment{claims("a")}, experiment.Only{"rtt": {"50ms"}}, ""},
	} {
		run := experimentRun{scale: "quick", out: t.TempDir()}
		var out strings.Builder
		err := run.runAll(t.Context(), &app{Output: command.Output{Out: &out, Err: &out}}, c.all, experiment.Options{Only: c.only})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q:\n%s", err, c.says, out.String())
		}
	}
}
