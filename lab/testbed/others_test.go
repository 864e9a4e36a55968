package testbed

import (
	"maps"
	"os"
	"os/exec"
	"testing"
)

// TestOthersAreSeen checks that the CPU time of a program that ran before counts, and so does that
// of what a shell has started since and waited for, but not that of the measurement itself.
func TestOthersAreSeen(t *testing.T) {
	spin := exec.Command("sh", "-c", `read go; sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo done; read end`)
	in, err := spin.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := spin.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	spin.Stderr = os.Stderr
	if err := spin.Start(); err != nil {
		t.Fatal(err)
	}
	defer spin.Wait() //nolint:errcheck // it ends with its input
	defer in.Close()
	with, err := WatchOthers(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	without, err := WatchOthers(os.Getpid(), spin.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []*Others{with, without} { // Other programs of the machine are not part of this test.
		maps.DeleteFunc(o.spent, func(k othersKey, _ float64) bool { return k.pid != spin.Process.Pid })
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	all, err := with.Processors()
	if err != nil {
		t.Fatal(err)
	}
	others, err := without.Processors()
	if err != nil {
		t.Fatal(err)
	}
	if all <= 0 || others != 0 {
		t.Errorf("with a shell that spun %v processors were taken, want some; without it %v, want 0", all, others)
	}
}
