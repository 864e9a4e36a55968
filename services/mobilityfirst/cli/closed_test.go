package cli

import (
	"crypto/ed25519"
	"errors"
	"testing"

	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
)

// A client whose host has ended returns that from waiting calls, and can be closed without an error
// any number of times.
func TestCloseAfterHost(t *testing.T) {
	socket, stop := hosttest.Run(t, host.Options{})
	c, err := hostapi.Open(t.Context(), socket, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := c.Receive(t.Context()); !errors.Is(err, hostapi.ErrClosed) {
		t.Errorf("what waits ends with %v", err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}
