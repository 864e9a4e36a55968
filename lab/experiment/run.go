package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/version"
)

// Options holds the options of Run.
type Options struct {
	Scale  Scale
	Only   Only
	Out    string    // folder of the output; made if missing
	Binary string    // path of sluice
	Lab    string    // path of sluice-lab
	Log    io.Writer // receives progress and results
}

// Run runs an experiment and writes its output. If ctx ends, the experiment removes what it has
// built and Run returns the context's error. Raw measurements made so far stay.
func Run(ctx context.Context, e Experiment, o Options) (*Result, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("experiments build network namespaces and need root")
	}
	env, err := newEnv(o)
	if err != nil {
		return nil, err
	}
	machine := describeMachine(ctx)
	fmt.Fprintf(o.Log, "%s: %s (scale %s)\n", e.Name, e.Title, o.Scale)
	result, err := e.Run(ctx, env)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fmt.Errorf("%s: stopped; measurements so far are in %s: %w", e.Name, o.Out, cause)
		}
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	page, err := publish(e, env, result, machine)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	if err := result.print(o.Log); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "\nreport: %s\n", page)
	return result, nil
}

func newEnv(o Options) (*Env, error) {
	dir, err := filepath.Abs(o.Out) // programs with other working folders write to it too
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("make the output folder: %w", err)
	}
	return &Env{Scale: o.Scale, Only: o.Only, Dir: dir, Binary: o.Binary, Lab: o.Lab, log: o.Log, started: time.Now()}, nil
}

// publish writes plots and report, and returns the report's path.
func publish(e Experiment, env *Env, result *Result, machine Machine) (string, error) {
	var svgs [][]byte
	for _, p := range result.Plots {
		svg, files, err := p.write(env.Dir)
		if err != nil {
			return "", err
		}
		svgs = append(svgs, svg)
		env.files = append(env.files, files...)
	}
	names := make([]string, len(env.files))
	for i, file := range env.files {
		names[i] = filepath.Base(file)
	}
	r := report{
		Experiment: e, Scale: env.Scale, Machine: machine, Result: result, Files: names,
		Date:    env.started.UTC().Format("2006-01-02 15:04 UTC"),
		Took:    time.Since(env.started).Truncate(time.Second),
		Command: strings.Join(append([]string{"sluice-lab"}, os.Args[1:]...), " "),
		Version: describeVersion(),
	}
	return r.write(env.Dir, svgs)
}

func describeVersion() string {
	v := version.Get()
	return strings.TrimSpace(fmt.Sprintf("%s %s (%s)", v.Version, v.Revision, v.Go))
}
