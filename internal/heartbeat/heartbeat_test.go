package heartbeat

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/pause"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) *Witness {
	t.Helper()
	w, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// What the witness misses it tells, with the time and the core.
func TestStall(t *testing.T) {
	w := start(t)
	from := time.Now()
	if err := w.child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pause.For(80*time.Millisecond, "nothing beats")
	if err := w.child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	to := time.Now()
	deadline := time.NewTicker(5 * time.Millisecond)
	defer deadline.Stop()
	for end := to.Add(5 * time.Second); len(w.Stalls(from, to, 70*time.Millisecond)) < runtime.NumCPU(); <-deadline.C {
		if time.Now().After(end) {
			t.Fatalf("after 80 ms in which nothing beat: %v", w.Stalls(from, to, 0))
		}
	}
	w.Stop()
	cores := map[int]bool{}
	for _, s := range w.Stalls(from, to, 70*time.Millisecond) {
		cores[s.Core] = true
		if s.At.Before(from.Add(-interval)) || s.At.After(to) || s.Took > time.Since(from) {
			t.Errorf("%v, but it was %s to %s", s, from.Format("15:04:05.000"), to.Format("15:04:05.000"))
		}
	}
	if len(cores) != runtime.NumCPU() {
		t.Errorf("only cores %v tell", cores)
	}
	if early := w.Stalls(from.Add(-time.Hour), from.Add(-10*time.Second), 0); len(early) > 0 {
		t.Errorf("before it was started: %v", early)
	}
}

// There is a thread for each core that nothing can move to another.
func TestOneThreadOnEachCore(t *testing.T) {
	w := start(t)
	defer w.Stop()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", w.child.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	pinned := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if cores, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				pinned[strings.TrimSpace(cores)] = true
			}
		}
	}
	for core := range runtime.NumCPU() {
		if !pinned[fmt.Sprint(core)] {
			t.Errorf("no thread is on core %d alone: %v", core, pinned)
		}
	}
}
