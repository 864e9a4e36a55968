package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Daemon is a program that runs in a lab until it is stopped.
type Daemon struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	done   chan struct{}
	group  *idleGroup // nil if it has no group of its own
}

// StartDaemon starts a program and writes its output to a file.
func StartDaemon(ctx context.Context, at Place, log string, name string, args ...string) (*Daemon, error) {
	return start(ctx, at, log, &syscall.SysProcAttr{Setpgid: true}, name, args)
}

// StartLowest starts a program as StartDaemon does, but the program gets only processor time that
// nothing else needs, as if it ran on a machine of its own. If the machine has no control groups
// for that, the program gets the lowest priority, with which it may still delay other programs by
// some milliseconds.
func StartLowest(ctx context.Context, at Place, log string, name string, args ...string) (*Daemon, error) {
	d, err := start(ctx, at, log, &syscall.SysProcAttr{Setsid: true}, name, args)
	if err != nil {
		return nil, err
	}
	if d.group, err = joinIdle(d.PID()); err == nil {
		return d, nil
	}
	if err := lowerPriority(d.PID()); err != nil {
		d.Stop()
		return nil, fmt.Errorf("lower the priority of %s: %w", name, err)
	}
	return d, nil
}

// start starts a program with attributes that keep Ctrl-C at the terminal from reaching it before
// Stop.
func start(ctx context.Context, at Place, log string, attr *syscall.SysProcAttr, name string, args []string) (*Daemon, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := at.Command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second // It is killed after that.
	if err := cmd.Start(); err != nil {
		cancel()
		out.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	d := &Daemon{cmd: cmd, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		defer out.Close()
		_ = cmd.Wait() // It was ended by Stop, or has failed, which its clients will notice.
	}()
	return d, nil
}

// PID returns the process ID of the program.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Stop asks the program to end, kills it after five seconds, and returns when it has ended.
func (d *Daemon) Stop() {
	d.cancel()
	<-d.done
	d.leave()
}

// Kill ends the program at once, as a crash would.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill() // It fails only if the process has ended already.
	<-d.done
	d.leave()
}

// leave removes the control group of a program that has ended.
func (d *Daemon) leave() {
	if d.group != nil {
		_ = d.group.remove() // It has been removed already, or a child of the program uses it.
	}
}

// Done returns a channel that is closed when the program has ended.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// WaitListening waits until a program at the place listens on the TCP port. It returns an error
// after readyWithin.
func WaitListening(ctx context.Context, at Place, port uint16) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := at.Command(ctx, "ss", "-Hltn", fmt.Sprintf("sport = :%d", port)).Output()
		if err == nil && len(out) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing listens on port %d: %w", port, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// lastWords is the number of lines of a log that an error message quotes.
const lastWords = 5

// Tail returns the last lines of a file, or the reason why it cannot be read. It is for messages
// about an error that has already occurred.
func Tail(file string, lines int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
