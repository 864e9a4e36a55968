package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/lab/experiment"
)

// everyExperiment is the argument that selects all experiments.
const everyExperiment = "all"

// experimentRun holds the options of `sluice-lab experiment run`.
type experimentRun struct {
	scale, out string
	only       []string
}

// outcome is the result of one experiment.
type outcome struct {
	Name   string             `json:"name"`
	Result *experiment.Result `json:"result,omitempty"`
	Error  string             `json:"error,omitempty"`
}

func (r *experimentRun) run(ctx context.Context, a *app, names []string) error {
	chosen, o, err := r.parse(names)
	if err != nil {
		return &command.UsageError{Err: err}
	}
	if o.Binary, o.Lab, err = a.programs(); err != nil {
		return err
	}
	return r.runAll(ctx, a, chosen, o)
}

// runAll runs experiments one after the other. If an experiment fails or misses a claim, runAll
// still runs the others and then returns an error.
func (r *experimentRun) runAll(ctx context.Context, a *app, chosen []experiment.Experiment, o experiment.Options) error {
	o.Log = a.Out
	if a.JSON {
		o.Log = a.Err
	}
	var outcomes []outcome
	var errs []error
	for _, e := range chosen {
		o.Out = r.folder(e, len(chosen) > 1)
		result, err := experiment.Run(ctx, e, o)
		if ctx.Err() != nil {
			return err
		}
		out := outcome{Name: e.Name, Result: result}
		if err != nil {
			out.Error = err.Error()
			errs = append(errs, err)
		}
		if result != nil && len(result.Claims) == 0 && len(o.Only) == 0 {
			errs = append(errs, fmt.Errorf("%s: no claim was tested", e.Name))
		}
		outcomes = append(outcomes, out)
	}
	if missed := countMissed(outcomes); missed > 0 {
		errs = append(errs, fmt.Errorf("%d claims were missed", missed))
	}
	var err error
	switch {
	case len(chosen) > 1:
		err = a.Print(outcomes, func(w io.Writer) { summarize(outcomes, w) })
	case a.JSON && outcomes[0].Result != nil:
		err = a.Print(outcomes[0].Result, nil)
	}
	return errors.Join(append(errs, err)...)
}

func countMissed(outcomes []outcome) (n int) {
	for _, o := range outcomes {
		if o.Result == nil {
			continue
		}
		for _, c := range o.Result.Claims {
			if !c.Met {
				n++
			}
		}
	}
	return n
}

// parse checks all arguments before anything runs.
func (r *experimentRun) parse(names []string) ([]experiment.Experiment, experiment.Options, error) {
	var chosen []experiment.Experiment
	for _, name := range names {
		if name == everyExperiment {
			if len(names) > 1 {
				return nil, experiment.Options{}, fmt.Errorf("%q selects every experiment: do not name another one", name)
			}
			chosen = experiment.All()
			break
		}
		e, err := experiment.Find(name)
		if err != nil {
			return nil, experiment.Options{}, err
		}
		chosen = append(chosen, e)
	}
	if len(r.only) > 0 && len(chosen) > 1 {
		return nil, experiment.Options{}, errors.New("--only: experiments vary different things; run one at a time")
	}
	scale, err := experiment.ParseScale(r.scale)
	if err != nil {
		return nil, experiment.Options{}, fmt.Errorf("--scale: %w", err)
	}
	only, err := experiment.ParseOnly(chosen[0], r.only)
	if err != nil {
		return nil, experiment.Options{}, fmt.Errorf("--only: %w", err)
	}
	return chosen, experiment.Options{Scale: scale, Only: only}, nil
}

// folder returns the folder of an experiment's output.
func (r *experimentRun) folder(e experiment.Experiment, several bool) string {
	switch {
	case r.out == "":
		return filepath.Join("out", e.Name)
	case several:
		return filepath.Join(r.out, e.Name)
	default:
		return r.out
	}
}

// summarize lists the claims of each experiment and whether they held.
func summarize(outcomes []outcome, w io.Writer) {
	fmt.Fprintln(w)
	for _, o := range outcomes {
		if o.Result == nil {
			fmt.Fprintf(w, "FAILED  %s\n", o.Error)
			continue
		}
		for _, c := range o.Result.Claims {
			fmt.Fprintf(w, "%s  %s: %s: %s\n", c.Verdict(), o.Name, c.Text, c.Result)
		}
	}
}
