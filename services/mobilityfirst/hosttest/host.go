// Package hosttest runs MobilityFirst hosts in tests.
package hosttest

import (
	"context"
	"crypto/ed25519"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// Run runs a host until the test ends or stop is called, and returns the path of its socket for
// applications. On a host without interfaces, the names of this machine find each other.
func Run(t testing.TB, o host.Options) (socket string, stop func()) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "mf.sock")
	l, err := listen.Unix(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	h := host.New(o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() { h.Run(ctx) })
	all.Go(func() {
		if err := h.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return socket, stop
}

// Open attaches the name of a key at a host until the test ends.
func Open(t testing.TB, socket string, key ed25519.PrivateKey) *hostapi.Client {
	t.Helper()
	c, err := hostapi.Open(t.Context(), socket, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
