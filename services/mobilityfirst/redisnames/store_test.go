package redisnames

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-net/sluice/internal/redistest"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// A record is removed when no older one can be valid any more.
func TestForgotten(t *testing.T) {
	c := three(t)
	s := open(t, c, Options{})
	r := sign(t, somebody(), 1, 1)
	if err := s.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	left, err := s.cluster.PTTL(t.Context(), keyOf(r.GUID())).Result()
	if err != nil || left <= record.KeepFor || left > record.KeepFor+time.Second {
		t.Errorf("it is kept for %v, %v", left, err)
	}
	s.keep = 300 * time.Millisecond
	if err := s.Write(t.Context(), sign(t, somebody(), 1, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one of both is forgotten", func() bool { return s.Names() == 1 })
	if n := number(t, s, r.GUID()); n != 1 {
		t.Errorf("number %d", n)
	}
}

// A full store accepts no new names, and updates those that it has.
func TestFull(t *testing.T) {
	s := open(t, three(t), Options{MaxNames: 1})
	who := somebody()
	if err := s.Write(t.Context(), sign(t, who, 1, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the name counts", func() bool { return s.Names() == 1 })
	if err := s.Write(t.Context(), sign(t, somebody(), 1, 1)); !errors.Is(err, record.ErrFull) {
		t.Errorf("another name: %v", err)
	}
	if err := s.Write(t.Context(), sign(t, who, 2, 1)); err != nil {
		t.Errorf("the name: %v", err)
	}
}

// A value in Redis that is not its owner's is not returned, and does not count as newer.
func TestGarbage(t *testing.T) {
	s := open(t, three(t), Options{})
	stamped := func(r *record.Record) string { return string(r.AppendTo(make([]byte, stampSize))) }
	for what, value := range map[string]func(r *record.Record) string{
		"a byte":             func(*record.Record) string { return "x" },
		"a stamp":            func(*record.Record) string { return "12345678" },
		"much":               func(*record.Record) string { return strings.Repeat("x", 60_000) },
		"too much":           func(*record.Record) string { return strings.Repeat("x", 70_000) },
		"as long as one":     func(*record.Record) string { return strings.Repeat("\xff", 130) },
		"somebody else's":    func(*record.Record) string { return stamped(sign(t, somebody(), 9, 1)) },
		"no signature":       func(r *record.Record) string { x := *r; x.Signature, x.Number = [64]byte{}, 9; return stamped(&x) },
		"a higher number":    func(r *record.Record) string { x := *r; x.Number = 9; return stamped(&x) },
		"another place":      func(r *record.Record) string { x := *r; x.Addresses = nil; return stamped(&x) },
		"it holds for ever":  func(r *record.Record) string { x := *r; x.Until = 1 << 62; return stamped(&x) },
		"it held before all": func(r *record.Record) string { x := *r; x.Until = -1 << 63; return stamped(&x) },
		"more":               func(r *record.Record) string { return stamped(r) + "x" },
		"less":               func(r *record.Record) string { return stamped(r)[:stampSize+115] },
	} {
		who := somebody()
		r := sign(t, who, 5, 1)
		if err := s.cluster.Set(t.Context(), keyOf(r.GUID()), value(r), 0).Err(); err != nil {
			t.Fatal(err)
		}
		if b, found, err := s.Get(nil, r.GUID()); !errors.Is(err, ErrStored) || found || len(b) > 0 {
			t.Errorf("%s: %x, %v, %v", what, b, found, err)
		}
		if err := s.Write(t.Context(), sign(t, who, 4, 1)); !errors.Is(err, ErrStored) {
			t.Errorf("%s: written: %v", what, err)
		}
	}
	r := sign(t, somebody(), 1, 1)
	if err := s.cluster.RPush(t.Context(), keyOf(r.GUID()), "a", "list").Err(); err != nil {
		t.Fatal(err)
	}
	if _, found, err := s.Get(nil, r.GUID()); err == nil || found || errors.Is(err, record.ErrBusy) {
		t.Errorf("a list: %v, %v", found, err)
	}
	if err := s.Write(t.Context(), r); err == nil || errors.Is(err, record.ErrBusy) {
		t.Errorf("a list: written: %v", err)
	}
	if err := s.cluster.Set(t.Context(), "somebody else's key", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	neighbour := sign(t, somebody(), 1, 1)
	if err := s.Write(t.Context(), neighbour); err != nil {
		t.Fatal(err)
	}
	is := false
	if err := s.Since(t.Context(), time.Time{}, frame.GUID{}, func(name frame.GUID, _ time.Time) bool {
		is = is || name == neighbour.GUID()
		return true
	}); err != nil || !is {
		t.Errorf("names among garbage: %v, %v", is, err)
	}
}

// Other stores are notified of a store's writes, and the store is not notified of its own; while
// notifications cannot be received, the stores report that.
func TestNews(t *testing.T) {
	c := three(t)
	a, b := open(t, c, Options{}), open(t, c, Options{})
	told := make(chan frame.GUID, 10)
	a.Changed(func(frame.GUID) { t.Error("it is told of its own") })
	b.Changed(func(name frame.GUID) { told <- name })
	for range 2 {
		eventually(t, "both hear", func() bool { return a.Hears() && b.Hears() })
		who := somebody()
		for _, n := range []uint64{1, 1, 2} {
			if err := a.Write(t.Context(), sign(t, who, n, 1)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			select {
			case name := <-told:
				if name != record.NameOfOwner(who) {
					t.Errorf("told of %v", name)
				}
			case <-time.After(time.Minute):
				t.Fatal("not told")
			}
		}
		deaf := false
		each(t, c, func(node *redis.Client) error {
			return node.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err()
		})
		eventually(t, "they notice that they do not hear, or hear again", func() bool { deaf = deaf || !a.Hears() || !b.Hears(); return deaf })
	}
	if len(told) > 0 {
		t.Errorf("%d more", len(told))
	}
}

// While a node's settings are too weak, nothing is written, and records are read.
func TestWeak(t *testing.T) {
	c := three(t)
	node := c.Node(c.Nodes[1])
	defer node.Close()
	set := func(name, value string) {
		t.Helper()
		if err := node.ConfigSet(context.WithoutCancel(t.Context()), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, c, Options{})
	r := sign(t, somebody(), 1, 1)
	if err := s.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ name, weak, strong string }{{"appendfsync", "everysec", "always"}, {"appendonly", "no", "yes"}, {"maxmemory", "100mb", "0"}} {
		if x.name == "maxmemory" {
			set("maxmemory-policy", "allkeys-lru")
			defer set("maxmemory-policy", "noeviction")
		}
		set(x.name, x.weak)
		defer set(x.name, x.strong)
		if _, err := Open(t.Context(), Options{Nodes: c.Addrs()}); !errors.Is(err, ErrWeak) {
			t.Errorf("%s: opened: %v", x.name, err)
		}
		if x.name == "appendfsync" {
			_ = open(t, c, Options{Fsync: FsyncEverySecond}).Close()
		}
		eventually(t, "it is noticed", func() bool { return errors.Is(s.Write(t.Context(), r), ErrWeak) })
		if n := number(t, s, r.GUID()); n != 1 {
			t.Errorf("%s: number %d", x.name, n)
		}
		set(x.name, x.strong)
		eventually(t, "it is noticed that it is over", func() bool { return s.Write(t.Context(), r) == nil })
	}
}

// A write without enough replicas is not acknowledged.
func TestNoReplicas(t *testing.T) {
	s := open(t, three(t), Options{Replicas: 1})
	r := sign(t, somebody(), 1, 1)
	for range 2 { // also when it is there already
		if err := s.Write(t.Context(), r); !errors.Is(err, record.ErrBusy) || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("%v", err)
		}
	}
	if n := number(t, s, r.GUID()); n != 1 {
		t.Errorf("number %d", n)
	}
}

// Without a cluster all requests are refused immediately; when there is one, it is used.
func TestNoCluster(t *testing.T) {
	t.Parallel()
	needRedis(t)
	s, err := Open(t.Context(), Options{Nodes: []string{at(2).String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := sign(t, somebody(), 1, 1)
	if _, _, err := s.Get(nil, r.GUID()); !errors.Is(err, record.ErrBusy) {
		t.Errorf("%v", err)
	}
	if err := s.Write(t.Context(), r); !errors.Is(err, record.ErrBusy) {
		t.Errorf("%v", err)
	}
	if s.Hears() {
		t.Error("it hears")
	}
	cluster(t, redistest.Options{At: at(2), Masters: 1})
	eventually(t, "it is asked", func() bool { return s.Write(t.Context(), r) == nil })
	eventually(t, "it hears", s.Hears)
}

// user returns a user of Redis with the permissions that a store needs, as
// docs/how-to/names-in-redis.md lists them.
const user = "user sluice on >%s resetchannels ~sluice:name:* &sluice:names +get +set +getrange +evalsha +eval +publish +subscribe +wait +ping +dbsize +asking +config|get +cluster|slots +cluster|keyslot +cluster|getkeysinslot"

// A store works with a cluster that requires a user and TLS.
func TestSecrets(t *testing.T) {
	t.Parallel()
	needRedis(t)
	dir := t.TempDir()
	ca, err := pki.Init(dir, "redis", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{Role: pki.RoleAgent, Name: "node", Hosts: []string{at(3).Addr().String()}})
	if err == nil {
		err = pair.Write(dir, "node")
	}
	if err != nil {
		t.Fatal(err)
	}
	files := pki.Files{Cert: filepath.Join(dir, "node.crt"), Key: filepath.Join(dir, "node.key"), CA: filepath.Join(dir, "ca.crt")}
	const secret = "nobodys-secret"
	config, err := pki.Client(pki.Files{CA: files.CA})
	if err != nil {
		t.Fatal(err)
	}
	c := cluster(t, redistest.Options{
		At: at(3), Masters: 1, Password: secret, TLS: config,
		Settings: []string{"tls-cert-file " + files.Cert, "tls-key-file " + files.Key, "tls-ca-cert-file " + files.CA, "tls-auth-clients optional", fmt.Sprintf(user, secret)},
	})
	s := open(t, c, Options{User: "sluice", Password: secret, TLS: config})
	r := sign(t, somebody(), 1, 1)
	if err := s.Write(t.Context(), r); err != nil {
		t.Error(err)
	}
	if n := number(t, s, r.GUID()); n != 1 {
		t.Errorf("number %d", n)
	}
	if err := s.Since(t.Context(), time.Time{}, r.GUID(), func(frame.GUID, time.Time) bool { return true }); err != nil {
		t.Error(err)
	}
	eventually(t, "it hears and counts", func() bool { return s.Hears() && s.Names() == 1 })
	if text, err := os.ReadFile("../../../docs/how-to/names-in-redis.md"); err != nil || !strings.Contains(string(text), fmt.Sprintf(user, "PASSWORD")) {
		t.Errorf("the documentation has another user: %v", err)
	}
	for what, o := range map[string]Options{"no password": {TLS: config}, "another": {Password: "x" + secret, TLS: config}, "another user": {User: "nobody", Password: secret, TLS: config}} {
		o.Nodes = c.Addrs()
		s, err := Open(t.Context(), o)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || errors.Is(err, record.ErrBusy) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", what, err)
		}
	}
	plain, err := Open(t.Context(), Options{Nodes: c.Addrs(), Password: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, _, err := plain.Get(nil, frame.GUID{}); !errors.Is(err, record.ErrBusy) {
		t.Errorf("without TLS: %v", err)
	}
}

// Invalid options are refused.
func TestOptions(t *testing.T) {
	for what, o := range map[string]Options{
		"no node":           {},
		"no port":           {Nodes: []string{"192.0.2.1"}},
		"port 0":            {Nodes: []string{"192.0.2.1:0"}},
		"no host":           {Nodes: []string{":6379"}},
		"a URL":             {Nodes: []string{"redis://user:secret@192.0.2.1:6379"}},
		"no password":       {Nodes: []string{"192.0.2.1:1"}, User: "u"},
		"too many replicas": {Nodes: []string{"192.0.2.1:1"}, Replicas: MaxReplicas + 1},
		"fewer than none":   {Nodes: []string{"192.0.2.1:1"}, Replicas: -1},
		"fsync":             {Nodes: []string{"192.0.2.1:1"}, Fsync: "sometimes"},
	} {
		if _, err := Open(t.Context(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
