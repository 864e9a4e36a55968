package delayline

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessName is argv[0] of a delay line process.
const ProcessName = "sluice-delayline"

const (
	readyLine    = "ready"
	startTimeout = 30 * time.Second
)

// A delay line process is a copy of any program that uses this package, tests included. So it must
// be recognised before that program's main runs.
func init() {
	if len(os.Args) > 0 && os.Args[0] == ProcessName {
		os.Exit(processMain())
	}
}

// processMain reads the Config from standard input, reports on standard output that it is ready,
// and carries the links until it receives a signal.
func processMain() int {
	fail := func(err error) int {
		fmt.Println(err)
		return 1
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var c Config
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		return fail(fmt.Errorf("delay line configuration: %w", err))
	}
	s, err := NewServer(c)
	if err != nil {
		return fail(err)
	}
	// The loops keep their processors during short sleeps.
	runtime.GOMAXPROCS(c.threads() + 2)
	fmt.Println(readyLine)
	if err := s.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Start runs a delay line process in a session of its own, so that it outlives the caller. The
// process writes its messages to logPath. Start returns the process ID once the TAP devices exist.
// The caller ends the process with SIGTERM, and need not wait for it.
func Start(ctx context.Context, c Config, logPath string) (pid int, err error) {
	if err := c.Validate(); err != nil {
		return 0, fmt.Errorf("delay line: %w", err)
	}
	input, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{ProcessName, c.Socket}
	cmd.Env = []string{"GOTRACEBACK=all"}
	cmd.Stdin = strings.NewReader(string(input))
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("delay line: %w", err)
	}
	ready := make(chan error, 1)
	go reap(cmd, out, ready)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = fmt.Errorf("delay line is not ready: %w", ctx.Err())
	}
	if err != nil {
		_ = cmd.Process.Signal(unix.SIGKILL)
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// reap sends the first line of a starting process to ready, and then waits for its end.
func reap(cmd *exec.Cmd, out io.Reader, ready chan<- error) {
	line, err := bufio.NewReader(out).ReadString('\n')
	line = strings.TrimSpace(line)
	switch {
	case line == readyLine:
		ready <- nil
	case line != "":
		ready <- errors.New(line)
	default:
		ready <- fmt.Errorf("delay line ended at once: %w", err)
	}
	_ = cmd.Wait()
}
