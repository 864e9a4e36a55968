package redisnames

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/internal/redistest"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// suite ends together with the cluster that all tests share.
type suite struct{ *testing.M }

func (s suite) Run() int {
	defer func() {
		if shared.cluster != nil {
			shared.cluster.Stop()
		}
	}()
	return s.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// shared is the cluster of three masters for tests that do not disturb it.
var shared struct {
	once    sync.Once
	cluster *redistest.Cluster
	err     error
}

// needRedis makes a test a live one, and skips it where there is no Redis: a store waits for
// its servers for fractions of a second, for which a slow machine may stop them.
func needRedis(t testing.TB) {
	t.Helper()
	live.Test(t)
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: scripts/deps.sh test does that")
	}
}

// three returns a cluster of three masters without keys.
func three(t testing.TB) *redistest.Cluster {
	t.Helper()
	needRedis(t)
	shared.once.Do(func() {
		shared.cluster, shared.err = redistest.Start(context.Background(), redistest.Options{At: at(0), Masters: 3})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	each(t, shared.cluster, func(node *redis.Client) error { return node.FlushAll(t.Context()).Err() })
	return shared.cluster
}

// at returns the address of a cluster by its number. The address belongs to this process, so
// servers that a panicking run has left behind do not disturb later runs.
func at(n uint16) netip.AddrPort {
	pid := os.Getpid()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 100 + byte(pid>>16), byte(pid >> 8), byte(pid)}), 21000+20*n)
}

// cluster starts a cluster for one test.
func cluster(t testing.TB, o redistest.Options) *redistest.Cluster {
	t.Helper()
	needRedis(t)
	c, err := redistest.Start(context.WithoutCancel(t.Context()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// each calls a function for each node.
func each(t testing.TB, c *redistest.Cluster, f func(*redis.Client) error) {
	t.Helper()
	for _, n := range c.Nodes {
		node := c.Node(n)
		if err := errors.Join(f(node), node.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// open opens a store in a cluster until the test ends.
func open(t testing.TB, c *redistest.Cluster, o Options) *Store {
	t.Helper()
	o.Nodes = c.Addrs()
	if c.Nodes[0].Addr == at(0) { // the shared one, which is always there
		o.slack = time.Minute
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, record.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); pause.For(5*time.Millisecond, "Redis does it") {
		if time.Since(began) > time.Minute {
			t.Fatalf("not so: %s", what)
		}
	}
}

// next numbers owners, so that each test has names of its own.
var next atomic.Uint64

// somebody returns the key of a new owner.
func somebody() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(be.AppendUint64(bytes.Repeat([]byte{7}, ed25519.SeedSize-8), next.Add(1)))
}

// until is the expiry of records.
var until = time.Now().Add(time.Hour)

func sign(t testing.TB, who ed25519.PrivateKey, number uint64, port uint16) *record.Record {
	t.Helper()
	r, err := record.Sign(who, number, until, gnrswire.AddrPortOf(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// number returns the number of a name's record, zero if there is none.
func number(t testing.TB, s interface {
	Get([]byte, frame.GUID) ([]byte, bool, error)
}, name frame.GUID,
) uint64 {
	t.Helper()
	b, found, err := s.Get(nil, name)
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return 0
	}
	r, err := record.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return r.Number
}

// of returns the key of an owner whose name belongs to a master.
func of(t testing.TB, s *Store, n *redistest.Node) ed25519.PrivateKey {
	t.Helper()
	for {
		who := somebody()
		master, err := s.master(record.NameOfOwner(who))
		if err != nil {
			t.Fatal(err)
		}
		if master == n.Addr.String() {
			return who
		}
	}
}
