package mobilityfirst

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// TestMoveToNewPort checks that chunks reach a host, and come from it, at a port that has just come up: before the
// controller has probed the port for long enough to regard it as an edge port. The host first moves to another switch,
// and is then unplugged until its name is gone.
func TestMoveToNewPort(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfmove"))
	c := controlWith(t, l, network.Config{DiscoverySettle: 20 * time.Second})
	dir := t.TempDir()
	start := func(at string) *hostapi.Client {
		socket := filepath.Join(dir, at+".sock")
		daemon(t, l.Host(at), dir, "mf", "host", "--interface", "eth0", "--socket", socket)
		return attachAt(t, socket)
	}
	a, b := start("a"), start("b")
	known(t, c)
	send(t, a, b, 10, 1000)
	edges := func() (n int) {
		for port := range uint32(20) {
			if c.net.IsEdge(network.PortRef{Switch: openflow.DatapathID(l.Switch("s1").DPID()), Port: port}) {
				n++
			}
		}
		return n
	}
	exchange := func(after string) {
		t.Helper()
		send(t, a, b, 10, 1000)
		send(t, b, a, 10, 1000)
		if n := edges(); n != 1 {
			t.Errorf("after %s: %d edge ports at the first switch, want one: chunks have waited for the new port", after, n)
		}
	}
	if err := l.MoveLink(t.Context(), "b-s3", "s1"); err != nil {
		t.Fatal(err)
	}
	exchange("the move")
	if err := l.SetLink(t.Context(), "b-s3", false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the name is gone", func() bool { return c.metric(t, "sluice_mobilityfirst_names") == 1 })
	if err := l.SetLink(t.Context(), "b-s3", true); err != nil {
		t.Fatal(err)
	}
	exchange("the link has come up again")
}

// A host whose interface loses its carrier and has it again, or is gone and there again, may be somewhere else: it
// greets, which is several hellos, while otherwise it says one every ten seconds.
func TestPluggedIn(t *testing.T) {
	begin(t)
	l := lab.New(t, lab.Topology{Name: "mfplug", Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}, Links: []lab.Link{lab.Both("a", "b", delayline.Params{})}})
	dir := t.TempDir()
	socket := filepath.Join(dir, "mf.sock")
	daemon(t, l.Host("a"), dir, "mf", "host", "--interface", "eth0", "--socket", socket)
	attachAt(t, socket)
	var hears *host.Interface
	if err := l.Host("b").Do(func() (err error) { hears, err = host.OpenInterface("eth0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hears.Close() }()
	// hello waits for the next, and returns when its host has signed it.
	hello := func() time.Time {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			frames, err := hears.Receive(ctx)
			if err != nil && !errors.Is(err, unix.ENETDOWN) {
				t.Fatal(err)
			}
			for _, f := range frames {
				if h, err := frame.Parse(f.Payload); err == nil {
					if h, is := h.(*frame.Hello); is {
						return time.Unix(0, int64(h.Number))
					}
				}
			}
		}
	}
	set := func(at, state string) {
		t.Helper()
		if out, err := l.Host(at).Command(t.Context(), "ip", "link", "set", "eth0", state).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	hello()
	for _, end := range []string{"b", "a"} { // the carrier, the interface
		pause.For(4*time.Second, "the greeting of before is over")
		var plugged time.Time
		for range 3 {
			set(end, "down")
			plugged = time.Now()
			set(end, "up")
		}
		var said []time.Time // by the clock of the host that greets
		for len(said) < 3 {
			if at := hello(); !at.Before(plugged) {
				said = append(said, at)
			}
		}
		if took := said[2].Sub(said[0]); took >= 10*time.Second {
			t.Errorf("%s has its link again: three hellos in %v are no greeting", end, took)
		}
	}
}
