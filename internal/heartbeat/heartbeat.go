package heartbeat

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Stall is a time in which a core did not run a thread that was due.
type Stall struct {
	Core int
	At   time.Time // when the thread was due
	Took time.Duration
}

// String is for what a test prints.
func (s Stall) String() string {
	return fmt.Sprintf("core %d stood still for %v at %s", s.Core, s.Took.Round(100*time.Microsecond), s.At.Format("15:04:05.000"))
}

// maxStalls bounds those that are remembered; there is one only every few milliseconds.
const maxStalls = 1 << 16

// Witness watches all cores until it is stopped. Its methods may be called concurrently.
type Witness struct {
	child *exec.Cmd
	quit  io.Closer
	over  sync.WaitGroup

	mu     sync.Mutex
	stalls []Stall
}

// Start starts a process that beats on every core. It ends with Stop, or with this process.
func Start() (*Witness, error) {
	w := &Witness{child: exec.Command("/proc/self/exe")}
	w.child.Env = []string{variable + "=1"}
	w.child.Stderr = os.Stderr
	quit, err := w.child.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	out, err := w.child.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	w.quit = quit
	if err := w.child.Start(); err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	lines := bufio.NewScanner(out)
	beats := false
	for !beats && lines.Scan() {
		if beats = lines.Text() == ready; !beats {
			w.note(lines.Text()) // one core stood still before all were ready
		}
	}
	if !beats {
		w.Stop()
		return nil, fmt.Errorf("heartbeat: the process does not beat: %q, %w", lines.Text(), lines.Err())
	}
	w.over.Go(func() { // ends with the process
		for lines.Scan() {
			w.note(lines.Text())
		}
	})
	return w, nil
}

// note remembers a line that the process has written.
func (w *Witness) note(line string) {
	var core int
	var at, took int64
	if _, err := fmt.Sscan(line, &core, &at, &took); err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.stalls) < maxStalls {
		w.stalls = append(w.stalls, Stall{Core: core, At: time.Unix(0, at), Took: time.Duration(took)})
	}
}

// Stop ends the process and waits for its last word. It may be called again.
func (w *Witness) Stop() {
	_ = w.quit.Close()
	w.over.Wait()
	_ = w.child.Wait() // it has said all
}

// Stalls are those of at least a length that were under way between two moments. What is
// not over yet is not among them: ask after Stop, or a while later.
func (w *Witness) Stalls(from, to time.Time, least time.Duration) []Stall {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Stall
	for _, s := range w.stalls {
		if s.Took >= least && s.At.Before(to) && s.At.Add(s.Took).After(from) {
			out = append(out, s)
		}
	}
	return out
}
