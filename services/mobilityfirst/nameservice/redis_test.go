package nameservice

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/redistest"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
	"github.com/sluice-net/sluice/services/mobilityfirst/redisnames"
	"github.com/sluice-net/sluice/services/mobilityfirst/replicas"
)

// redisAt starts a Redis Cluster of one node at a port.
func redisAt(t *testing.T, port uint16) Redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: scripts/deps.sh test does that")
	}
	c, err := redistest.Start(context.WithoutCancel(t.Context()), redistest.Options{
		At: netip.AddrPortFrom(netip.MustParseAddr("127.78.0.9"), port), Masters: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return Redis{Nodes: c.Addrs()}
}

// What one service has put into Redis, the next one finds there, and passes on to another domain, which was away, and has it in
// a Redis of its own.
func TestRedis(t *testing.T) {
	west := replicas.Domain{Name: "west", Addr: netip.MustParseAddrPort("127.78.0.3:5001")}
	east := replicas.Domain{Name: "east", Addr: netip.MustParseAddrPort("127.78.0.4:5001")}
	o := Options{Self: "west", Domains: []replicas.Domain{west, east}, Replicas: 2, Redis: redisAt(t, 21500)}
	_, stop := start(t, o)
	c, err := gnrs.Dial(west.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	r, err := record.Sign(key, 1, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	stop()
	again, _ := start(t, o)
	found, err := c.Lookup(t.Context(), record.NameOfOwner(key))
	if err != nil || found.Number != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	eventually(t, "the name counts", func() bool { return again.Status().Names == 1 })
	o.Self, o.Redis = "east", redisAt(t, 21520)
	other, _ := start(t, o)
	eventually(t, "the other domain has it", func() bool { return other.Status().Names == 1 })
}

// A cluster that can't be is refused.
func TestRedisCheck(t *testing.T) {
	nodes := []string{"192.0.2.7:6379"}
	for what, x := range map[string]struct {
		r    Redis
		fine bool
	}{
		"none":             {Redis{}, true},
		"some":             {Redis{Nodes: nodes}, true},
		"all":              {Redis{Nodes: nodes, User: "u", Password: "p", TLS: pki.Files{CA: "a", Cert: "c", Key: "k"}, Replicas: 2, Fsync: redisnames.FsyncNever}, true},
		"a user of none":   {Redis{User: "u", Password: "p"}, false},
		"replicas of none": {Redis{Replicas: 1}, false},
		"TLS of none":      {Redis{TLS: pki.Files{CA: "a"}}, false},
		"half a pair":      {Redis{Nodes: nodes, TLS: pki.Files{Key: "k"}}, false},
		"no password":      {Redis{Nodes: nodes, User: "u"}, false},
		"no port":          {Redis{Nodes: []string{"192.0.2.7"}}, false},
	} {
		if err := x.r.Check(); (err == nil) != x.fine || err != nil && !errors.Is(err, redisnames.ErrOptions) {
			t.Errorf("%s: %v", what, err)
		}
	}
	o := Options{Dir: t.TempDir(), Listen: netip.MustParseAddrPort("127.78.0.5:5001"), Redis: Redis{Nodes: nodes, TLS: pki.Files{CA: filepath.Join(t.TempDir(), "none")}}}
	if err := New(o).Run(t.Context()); err == nil {
		t.Error("it runs without its authority")
	}
}
