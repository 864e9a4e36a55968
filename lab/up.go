package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/namespace"
	"github.com/sluice-net/sluice/lab/delayline"
)

// Options are the options of Up. The zero value is what the command line uses.
type Options struct {
	// RunDir is the directory where the lab is recorded; empty means DefaultRunDir.
	RunDir string
	// Logf receives a line for each change of the machine, and warnings.
	Logf func(format string, args ...any)
	// Shaping selects what gives links their properties: ShapingAuto, ShapingNetem or
	// ShapingDelayLine.
	Shaping string
	// Ephemeral ties the lab to the process that builds it: once that process has ended, Sweep of
	// another process removes the lab.
	Ephemeral bool
	// ByThread makes the kernel share processors by thread while the lab is up, and not by session,
	// where it supports that (sched(7), "The autogroup feature"). It affects the whole machine.
	// Without it a switch, which checks its cached flows whenever rules change, would keep a
	// controller of another session waiting for 100 ms and more. With it switches get a smaller
	// share if many other programs run.
	ByThread bool
}

// ErrNotRoot is returned if the caller is not root.
var ErrNotRoot = errors.New("the lab needs root: it makes network namespaces and interfaces")

// cleanupTimeout bounds the removal of a lab.
const cleanupTimeout = 60 * time.Second

// Up builds the network. If it fails it removes what it has made.
func Up(ctx context.Context, t Topology, o Options) (*Lab, error) {
	p, err := newPlan(t)
	if err != nil {
		return nil, fmt.Errorf("topology %s: %w", t.Name, err)
	}
	l, err := up(ctx, p, o)
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", p.Topology.Name, err)
	}
	return l, nil
}

func up(ctx context.Context, p plan, o Options) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	if err := checkTools(p.Topology); err != nil {
		return nil, err
	}
	shaper, err := chooseShaping(o.Shaping)
	if err != nil {
		return nil, err
	}
	l := newLab(p, runDirOr(o.RunDir), o.Logf)
	l.shaper, l.byThread = shaper, o.ByThread
	release, err := l.claim(o)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := l.build(ctx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return nil, errors.Join(err, l.remove(ctx))
	}
	return l, nil
}

func checkTools(t Topology) error {
	tools := []string{"nsenter"}
	if len(t.Switches) > 0 {
		tools = append(tools, "ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: install openvswitch-switch and util-linux: %w", tool, err)
		}
	}
	return nil
}

// claim reserves the lab's name and records what is going to be made.
func (l *Lab) claim(o Options) (release func(), err error) {
	if release, err = l.reserve(); err != nil {
		return nil, err
	}
	l.record = record{
		Version: 1, Created: time.Now().UTC(), Owner: self(), Ephemeral: o.Ephemeral,
		Shaper: l.shaper, Namespaces: l.plan.namespaces(), Plan: l.plan,
	}
	for _, name := range l.record.Namespaces {
		if namespace.Exists(name) {
			err = fmt.Errorf("namespace %s exists already, and this lab did not make it", name)
		}
	}
	if err == nil {
		err = writeRecord(l.dir, l.record)
	}
	if err != nil {
		release()
		return nil, errors.Join(err, os.RemoveAll(l.dir))
	}
	return release, nil
}

// longestSocket is the longest path of a file below a lab's directory, without the switch's name;
// no path of a socket is longer. maxSocketPath is the longest path of a socket that the kernel
// accepts.
const (
	longestSocket = "/ovs/" + "ovs-vswitchd.pid.tmp"
	maxSocketPath = 107
)

// reserve makes the lab's directory and locks it. Until it is locked, Sweep may take it for the
// directory of a builder that has ended.
func (l *Lab) reserve() (release func(), err error) {
	for range 5 {
		if err := l.makeDir(); err != nil {
			return nil, err
		}
		release, err := lockDir(l.dir)
		if err == nil {
			if _, err = os.Stat(l.dir); err == nil {
				return release, nil
			}
			release()
		}
		if !errors.Is(err, ErrNoLab) && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s keeps being removed", l.dir)
}

// makeDir makes the lab's directory, which also reserves its name.
func (l *Lab) makeDir() error {
	longest := 0
	for _, s := range l.plan.Topology.Switches {
		longest = max(longest, len(l.dir)+len(longestSocket)+len(s.Name))
	}
	if longest > maxSocketPath {
		return fmt.Errorf("the run directory %s is too long for sockets in it: %d bytes more than the kernel takes", l.runDir, longest-maxSocketPath)
	}
	for range 5 {
		if err := os.MkdirAll(l.runDir, 0o755); err != nil {
			return err
		}
		err := os.Mkdir(l.dir, 0o755)
		switch {
		case errors.Is(err, os.ErrExist):
			return fmt.Errorf("it is up already, or left over: take it down first (sluice-lab down %s)", l.Name())
		case !errors.Is(err, os.ErrNotExist): // Otherwise the last lab has removed the run directory meanwhile.
			return err
		}
	}
	return fmt.Errorf("%s keeps being removed", l.runDir)
}

// build makes all parts of the lab, in an order in which no part has to be made twice.
func (l *Lab) build(ctx context.Context) error {
	if len(l.plan.Topology.Switches) > 0 {
		if err := l.tuning.hold(l.byThread); err != nil {
			return err
		}
	}
	steps := []func(context.Context) error{
		l.makeNamespaces, l.makeControlNetwork, l.makeWires, l.startDelayLine,
		l.joinControlNetwork, l.configureInterfaces, l.configureHosts, l.startSwitches,
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	l.record.Complete = true
	return writeRecord(l.dir, l.record)
}

func (l *Lab) makeNamespaces(context.Context) error {
	for _, name := range l.record.Namespaces {
		if err := namespace.Create(name); err != nil {
			return err
		}
	}
	for _, name := range l.record.Namespaces {
		if err := inNamespace(name, setLoopbackUp); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}

// startDelayLine runs the process that carries the shaped links, if there are any.
func (l *Lab) startDelayLine(ctx context.Context) error {
	if l.shaper != ShapingDelayLine {
		return nil
	}
	c := delayline.Config{Socket: filepath.Join(l.dir, socketFile)}
	var down []string
	for _, w := range slices.Concat(l.wires(), l.plan.Controls) {
		if w.Link.shaped() {
			if w.Link.Down {
				down = append(down, w.Link.Name)
			}
			c.Links = append(c.Links, delayline.Link{
				Name: w.Link.Name, A: w.A.tap(), B: w.B.tap(),
				AtoB: w.Link.AtoB, BtoA: w.Link.BtoA,
			})
		}
	}
	if len(c.Links) == 0 {
		return nil
	}
	if _, err := delayline.Start(ctx, c, filepath.Join(l.dir, logFile)); err != nil {
		return err
	}
	for _, name := range down {
		if err := l.delayLine().SetUp(ctx, name, false); err != nil {
			return err
		}
	}
	return nil
}

// tap returns the delay line's end at an interface.
func (f iface) tap() delayline.End {
	return delayline.End{
		Namespace: namespace.Path(f.Namespace),
		Interface: f.Name,
		Offload:   f.Offload,
	}
}

func inNamespace(name string, f func() error) error {
	return namespace.Do(namespace.Path(name), f)
}
