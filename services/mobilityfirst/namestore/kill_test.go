package namestore

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// childDir is the variable with the folder in which this program writes records until it is killed.
const childDir = "SLUICE_NAMESTORE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := writeForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

const writers = 16

// writeForEver runs writers of one name each, and prints what the store has acknowledged.
func writeForEver(dir string) error {
	s, err := Open(Options{Dir: dir})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	failed := make(chan error)
	for who := range writers {
		go func() {
			for n := uint64(time.Now().UnixNano()); ; n++ {
				r, err := record.Sign(owner(who), n, time.Now().Add(time.Hour), place(1))
				if err == nil {
					err = s.Write(context.Background(), r)
				}
				if err != nil {
					failed <- err
				}
				mu.Lock()
				fmt.Println(who, n)
				mu.Unlock()
			}
		}()
	}
	return <-failed
}

// Every acknowledged write is there after a kill during writes, again and again.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	for range 10 {
		acknowledged := killed(t, dir)
		s := open(t, Options{Dir: dir})
		for who, n := range acknowledged {
			if got := s.number(t, record.NameOfOwner(owner(who))); got < n {
				t.Errorf("writer %d: number %d is there, %d was acknowledged", who, got, n)
			}
		}
		if len(acknowledged) < writers || s.Names() != writers {
			t.Errorf("%d writers were acknowledged, %d names are there", len(acknowledged), s.Names())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killed runs a process that writes, kills it after a number of writes, and returns the last
// acknowledged number of each writer.
func killed(t *testing.T, dir string) map[int]uint64 {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := map[int]uint64{}
	lines := bufio.NewScanner(out)
	left := 200 + rand.IntN(2000)
	for lines.Scan() {
		var who int
		var n uint64
		if _, err := fmt.Sscan(lines.Text(), &who, &n); err != nil {
			break // cut off by the kill
		}
		acknowledged[who] = n
		if left--; left == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || left > 0 {
		t.Fatalf("it ended by itself: %v: %s", err, said.String())
	}
	return acknowledged
}
