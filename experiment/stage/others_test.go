package stage

import (
	"os"
	"os/exec"
	"testing"
)

// What a program that ran before takes is seen, and so is what a shell has started since and
// waited for; what belongs to the measurement is not.
func TestOthersAreSeen(t *testing.T) {
	spin := exec.Command("sh", "-c", `read go; timeout 0.3 sh -c 'while :; do :; done'; echo done; read end`)
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
	if all <= others {
		t.Errorf("with a shell that spun %v processors were taken, without it %v", all, others)
	}
}
