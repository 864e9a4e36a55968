package etcdstore_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/etcdstore"
	"github.com/sluice-net/sluice/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// freePort returns a port on loopback that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// server starts a real etcd, as an operator would run it, and returns its address.
func server(t *testing.T) string {
	t.Helper()
	live.Test(t)
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("etcd is not installed: scripts/deps.sh test does that")
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", freePort(t)), fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	var log logtest.Log
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "etcd", "--name", "test", "--data-dir", t.TempDir(), "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "test="+peer)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("etcd's log:\n%s", log.String())
		}
	})
	return client
}

func open(t *testing.T, endpoint, prefix string) *etcdstore.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := etcdstore.Open(ctx, etcdstore.Options{Endpoints: []string{endpoint}, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A store on a real etcd passes the conformance test, once for each of several
// installations that share it.
func TestConformance(t *testing.T) {
	endpoint := server(t)
	var installations atomic.Int64
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t, endpoint, fmt.Sprintf("/installation-%d", installations.Add(1)))
	})
}

// Two installations with prefixes of their own do not see each other's keys.
func TestPrefixes(t *testing.T) {
	endpoint := server(t)
	one, two := open(t, endpoint, "/a"), open(t, endpoint, "/ab")
	defer one.Close()
	defer two.Close()
	if err := two.Put(t.Context(), "key", []byte("two")); err != nil {
		t.Fatal(err)
	}
	if all, err := one.List(t.Context(), ""); err != nil || len(all) != 0 {
		t.Errorf("the other installation has %v, %v", all, err)
	}
}

func TestUnreachable(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := etcdstore.Open(ctx, etcdstore.Options{Endpoints: []string{"http://127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("connecting to nothing: %v", err)
	}
}
