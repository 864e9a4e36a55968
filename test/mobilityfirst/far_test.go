package mobilityfirst

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// daemon runs a sluice on a host of a lab until the test ends.
func daemon(t *testing.T, at *lab.LiveHost, dir string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%s.log", at.Name(), args[1])))
	if err != nil {
		t.Fatal(err)
	}
	cmd := at.Command(context.WithoutCancel(t.Context()), selfbuild.Binary(t), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		if t.Failed() {
			t.Logf("%q: %s", args, testbed.Tail(log.Name(), 20))
		}
		log.Close()
	})
}

// attachAt attaches a new name at a host that may not run yet.
func attachAt(t *testing.T, socket string) (c *hostapi.Client) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := testbed.Poll(t.Context(), "the host", func() (err error) { c, err = hostapi.Open(t.Context(), socket, key); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Hosts that share no Ethernet, but have addresses and a name service, or one each that know of each other, bring chunks
// to each other's names; they go on when one of them has another address, as in another domain.
func TestFarNames(t *testing.T) {
	begin(t)
	for name, domains := range map[string]int{"one service": 1, "one in each domain": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			farNames(t, domains)
		})
	}
}

func farNames(t *testing.T, domains int) {
	l := lab.New(t, line(fmt.Sprintf("mffar%d", domains)))
	dir := t.TempDir()
	d, err := testbed.Deploy(context.WithoutCancel(t.Context()), testbed.Options{Lab: l, Binary: selfbuild.Binary(t), LogDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	service := func(at string) string { return l.Host(at).Addr().String() + ":5001" }
	of := map[string]string{"a": service("c"), "b": service("c")}
	if domains == 1 {
		daemon(t, l.Host("c"), dir, "mf", "gnrs", "--listen", of["b"], "--dir", filepath.Join(dir, "names"))
	} else {
		of["a"] = service("a")
		for domain, host := range map[string]string{"west": "a", "east": "c"} { // of which one alone keeps each name
			daemon(t, l.Host(host), dir, "mf", "gnrs", "--dir", filepath.Join(dir, domain), "--self", domain, "--replicas", "1",
				"--domain", "west="+of["a"], "--domain", "east="+of["b"])
		}
	}
	as, bs := filepath.Join(dir, "a.sock"), filepath.Join(dir, "b.sock")
	daemon(t, l.Host("a"), dir, "mf", "host", "--socket", as, "--udp", "5028", "--names", of["a"])
	daemon(t, l.Host("b"), dir, "mf", "host", "--socket", bs, "--udp", "5028", "--names", of["b"])
	from, to := attachAt(t, as), attachAt(t, bs)

	ip := func(args ...string) {
		t.Helper()
		if out, err := l.Host("b").Command(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v: %s", args, err, out)
		}
	}
	for i := range 20 {
		if i == 10 { // the host is elsewhere
			ip("-4", "addr", "flush", "dev", "eth0")
			ip("addr", "add", "10.0.0.77/8", "dev", "eth0")
		}
		want := random(t, 20_000*(i+1))
		became := make(chan error, 1)
		began := time.Now()
		if err := from.Send(t.Context(), to.Name, 0, want, func(err error) { became <- err }); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, to); got.From != from.Name || !bytes.Equal(got.Payload, want) {
			t.Fatalf("chunk %d has come with %d bytes of %d, or others", i, len(got.Payload), len(want))
		}
		if err := <-became; err != nil {
			t.Error(err)
		}
		if i == 0 || i == 10 {
			t.Logf("chunk %d after %v", i, time.Since(began))
		}
	}
}
