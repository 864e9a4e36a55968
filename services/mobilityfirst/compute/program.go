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

// Program is a function that runs a program for each call. The program reads the payload from
// standard input until its end, and writes the result to standard output. Its environment contains
// SLUICE_FROM and SLUICE_TO, the names of the sender and of the destination, and PATH; its working
// directory is the root. If its exit status is not zero, its standard error is the reason of the
// failure.
type Program struct {
	// Args contains the program, as exec.LookPath finds it, and its arguments.
	Args []string
	// Within is how long a call may take. After that, or when the program ends, the rest of its
	// process group is killed.
	Within time.Duration
	// Memory limits the writable memory of each process in bytes, in steps of 1 KiB.
	Memory uint64
}

// limitScript lets a shell set the limits before it executes the program, so that they apply to
// everything that the program starts.
const limitScript = `ulimit -c 0 && ulimit -t "$1" && ulimit -d "$2" && shift 2 && exec "$@"`

// Call implements Function: it runs the program on a payload, and returns what the program has
// written to standard output.
func (p *Program) Call(ctx context.Context, o *Order, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Within, fmt.Errorf("it took more than %v", p.Within))
	defer cancel()
	args := append([]string{"-c", limitScript, "sh", fmt.Sprint(int(p.Within/time.Second) + 1), fmt.Sprint(p.Memory >> 10)}, p.Args...)
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "SLUICE_FROM=" + o.Source.String(), "SLUICE_TO=" + o.Destination.String()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = time.Second // processes that have left the group may hold the pipes
	out, stderr := &limitedBuffer{limit: MaxPayload, full: cancel}, &limitedBuffer{limit: hostapi.MaxReason, truncate: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(payload), out, stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnable, err)
	}
	awaitEnd(cmd)
	_ = killGroup(cmd) // kills the rest of the group while the process ID is not reused
	err := cmd.Wait()
	switch {
	case out.exceeded:
		return nil, fmt.Errorf("a result of more than %d bytes", MaxPayload)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(stderr.data)))
	}
	return out.data, nil
}

// awaitEnd waits until a program has ended, without reaping it.
func awaitEnd(cmd *exec.Cmd) {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// killGroup kills a program and the processes in its group.
func killGroup(cmd *exec.Cmd) error {
	err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// limitedBuffer is a writer that keeps a limited number of bytes. Beyond the limit it drops data if
// truncate is set, and otherwise fails.
type limitedBuffer struct {
	data     []byte
	limit    int
	truncate bool
	full     func()
	exceeded bool
}

func (w *limitedBuffer) Write(b []byte) (int, error) {
	fits := min(len(b), w.limit-len(w.data))
	w.data = append(w.data, b[:fits]...)
	if fits == len(b) || w.truncate {
		return len(b), nil
	}
	w.exceeded = true
	w.full()
	return fits, io.ErrShortWrite
}
