package lab

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
)

// upTimeout bounds the building of a lab in a test.
const upTimeout = 2 * time.Minute

var testLabs atomic.Int64

// New builds a topology for a test and takes it down when the test ends. It skips the test if the
// caller is not root. The lab's name is the topology's with a suffix, so that tests in several
// processes can use one topology at once.
func New(t testing.TB, topology Topology) *Lab {
	t.Helper()
	return NewWith(t, topology, Options{})
}

// NewWith does what New does, with options.
func NewWith(t testing.TB, topology Topology, o Options) *Lab {
	t.Helper()
	live.Test(t)
	o.Ephemeral = true
	if o.Logf == nil {
		o.Logf = t.Logf
	}
	ctx, cancel := context.WithTimeout(context.Background(), upTimeout)
	defer cancel()
	if err := Sweep(ctx, o); err != nil {
		t.Logf("labs of ended tests: %v", err)
	}
	topology.Name = fmt.Sprintf("%.9s-%d-%d", topology.Name, os.Getpid(), testLabs.Add(1))
	l, err := Up(ctx, topology, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := l.Down(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}
