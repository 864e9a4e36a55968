package hosttest_test

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTakeThenClose checks that chunks which an application takes over before it closes its
// connection count as taken, although messages are sent together with later ones: none of them
// comes again, and the sender is told of each.
func TestTakeThenClose(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	key := func(seed byte) ed25519.PrivateKey {
		return ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), seed))
	}
	from := hosttest.Open(t, socket, key(1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := uint32(0)
	for _, chunks := range []uint32{1, 10, 1000} {
		to := hosttest.Open(t, socket, key(2))
		results := make(chan error, chunks)
		last := next + chunks
		go func() {
			for i := last - chunks; i < last; i++ {
				if err := from.Send(ctx, to.Name, 0, binary.BigEndian.AppendUint32(nil, i), func(err error) { results <- err }); err != nil {
					results <- err
				}
			}
		}()
		for ; next < last; next++ {
			x, err := to.Receive(ctx)
			if err == nil {
				err = to.Take(x)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := binary.BigEndian.Uint32(x.Payload); got != next {
				t.Fatalf("chunk %d has come, want %d", got, next)
			}
		}
		if err := to.Close(); err != nil {
			t.Error(err)
		}
		for range chunks {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTooManyApplications checks that an application for which a host has no room learns why, even
// if the applications before it attach no name, and that there is room when one of them has ended.
func TestTooManyApplications(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	var silent []net.Conn
	for range 64 {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	const want = "64 applications are connected"
	for range 20 { // the host closes the connection before or after the application has sent its name
		if c, err := hostapi.Open(t.Context(), socket, key); err == nil {
			_ = c.Close()
			t.Fatal("application 65 has attached a name")
		} else if !strings.Contains(err.Error(), want) {
			t.Fatalf("error of application 65 = %q, want one with %q", err, want)
		}
	}
	if err := silent[0].Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		c, err := hostapi.Open(ctx, socket, key)
		if err == nil {
			_ = c.Close()
			return
		}
		if !strings.Contains(err.Error(), want) {
			t.Fatal(err)
		}
	}
}
