package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// process is a running program.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended
}

// run starts a program whose output is appended to the file log. The program is in a process group of
// its own, so that Ctrl-C at a terminal does not end it before the process that has started it.
func run(log, name string, args ...string) (process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return process{}, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	p := process{cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return process{}, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // why it has ended does not matter: its clients notice that it has
	}()
	return p, nil
}

// PID returns the program's process ID.
func (p process) PID() int { return p.cmd.Process.Pid }

// Kill kills the program, as a crash would, and waits until it has ended.
func (p process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	<-p.done
}

// lastLines is the number of lines of a log that an error message quotes.
const lastLines = 5

// logged returns the last lines of a log, or why it cannot be read.
func logged(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lastLines):], "\n")
}
