package compute

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// Program is a function that is a program: it reads the payload from standard input until that ends, and writes the result to
// standard output. In its environment are SLUICE_FROM and SLUICE_TO, the names of the sender and of the destination, and PATH; its
// folder is the root. If it ends with another status than zero, what it has written to standard error is the reason.
type Program struct {
	// Args are the program, as exec.LookPath finds it, and its arguments.
	Args []string
	// Within is how long a call may take. What is left of the program then is killed, as is what is left of its process group
	// when it ends.
	Within time.Duration
	// Memory is how many bytes each of its processes may have to write to, in steps of 1 KiB.
	Memory uint64
}

// bounded has a shell bound a program before it becomes that: so nothing that it starts is without bounds.
const bounded = `ulimit -c 0 && ulimit -t "$1" && ulimit -d "$2" && shift 2 && exec "$@"`

// Call is a Function.
func (p *Program) Call(ctx context.Context, o *Order, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Within, fmt.Errorf("it took more than %v", p.Within))
	defer cancel()
	args := append([]string{"-c", bounded, "sh", fmt.Sprint(int(p.Within/time.Second) + 1), fmt.Sprint(p.Memory >> 10)}, p.Args...)
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "SLUICE_FROM=" + o.Source.String(), "SLUICE_TO=" + o.Destination.String()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = time.Second // what has left the group may have the pipes
	out, said := &limited{most: MaxPayload, full: cancel}, &limited{most: hostapi.MaxReason, cut: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(payload), out, said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnable, err)
	}
	awaitEnd(cmd)
	_ = killGroup(cmd) // what is left, while its number is nobody else's
	err := cmd.Wait()
	switch {
	case out.over:
		return nil, fmt.Errorf("a result of more than %d bytes", MaxPayload)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(said.has)))
	}
	return out.has, nil
}

// awaitEnd waits until a program has ended, and leaves it to be waited for.
func awaitEnd(cmd *exec.Cmd) {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// killGroup kills a program and what it has started.
func killGroup(cmd *exec.Cmd) error {
	err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// limited takes so many bytes. What comes beyond that is left out if it is to be cut, or else ends it.
type limited struct {
	has  []byte
	most int
	cut  bool
	full func()
	over bool
}

func (w *limited) Write(b []byte) (int, error) {
	fits := min(len(b), w.most-len(w.has))
	w.has = append(w.has, b[:fits]...)
	if fits == len(b) || w.cut {
		return len(b), nil
	}
	w.over = true
	w.full()
	return fits, io.ErrShortWrite
}
