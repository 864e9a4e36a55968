package redisnames

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/redistest"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// serve runs a server on a store until the test ends.
func serve(t *testing.T, s *Store) *gnrs.Server {
	t.Helper()
	server, err := gnrs.Listen(gnrs.Options{Store: s, Listen: netip.MustParseAddrPort("127.0.0.1:0"), Limits: gnrs.Limits{Lookups: 1e5, Writes: 1e4, NewNames: 1e4}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return server
}

// A cache for one server is notified when a name is written at another that shares the cluster.
func TestTwoServers(t *testing.T) {
	c := three(t)
	a, b := open(t, c, Options{}), open(t, c, Options{})
	eventually(t, "both hear", func() bool { return a.Hears() && b.Hears() })
	writer, err := gnrs.Dial(serve(t, a).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	told := make(chan frame.GUID, 10)
	cache, err := gnrs.DialCache(serve(t, b).Addr(), func(name frame.GUID) { told <- name })
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	who := somebody()
	name := record.NameOfOwner(who)
	for n := uint64(1); n <= 20; n++ {
		if err := writer.Write(t.Context(), sign(t, who, n, 1)); err != nil {
			t.Fatal(err)
		}
		if n > 1 {
			select {
			case <-told:
			case <-time.After(25 * time.Second): // its answers would hold for half a minute
				t.Fatalf("the cache is not told of record %d", n)
			}
		}
		eventually(t, "the cache has it", func() bool {
			r, err := cache.Lookup(t.Context(), name)
			return err == nil && r.Number == n
		})
	}
	var refused *gnrs.RefusedError
	if err := writer.Write(t.Context(), sign(t, who, 3, 1)); !errors.As(err, &refused) || refused.Code != gnrs.Old {
		t.Errorf("an older one: %v", err)
	}
	if _, err := cache.Lookup(t.Context(), record.NameOfOwner(somebody())); !errors.As(err, &refused) || refused.Code != gnrs.NotFound {
		t.Errorf("a name of nobody: %v", err)
	}
}

// A server whose cluster does not answer replies that it is busy, and answers again when the
// cluster does.
func TestSilentCluster(t *testing.T) {
	t.Parallel()
	c := cluster(t, redistest.Options{At: at(6), Masters: 1})
	s := open(t, c, Options{})
	client, err := gnrs.Dial(serve(t, s).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r := sign(t, somebody(), 1, 1)
	if err := client.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(c.Nodes[0].PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(c.Nodes[0].PID(), syscall.SIGCONT) }()
	for range 20 {
		var refused *gnrs.RefusedError
		if _, err := client.Lookup(t.Context(), r.GUID()); !errors.As(err, &refused) || refused.Code != gnrs.Busy {
			t.Errorf("%v", err)
		}
	}
	if err := syscall.Kill(c.Nodes[0].PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it answers again", func() bool {
		found, err := client.Lookup(t.Context(), r.GUID())
		return err == nil && found.Number == 1
	})
}
