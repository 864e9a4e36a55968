package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

// TestMain runs the program instead of the tests where the test's own program is started under
// the name of the example: it need not be built again.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == name {
		main()
	}
	goleak.VerifyTestMain(m)
}

const port = 8000 // at which every host has a server

// world is three switches in a row with a host each, and the program with its service.
type world struct {
	t       *testing.T
	lab     *lab.Lab
	program *testbed.OwnProgram
}

func newWorld(t *testing.T) *world {
	t.Helper()
	topology := lab.Line("quarantine", 3, delayline.Params{})
	topology.Hosts[2].Agent = true
	w := &world{t: t, lab: lab.New(t, topology)}
	var err error
	w.program, err = testbed.NewOwnProgram(w.lab, t.TempDir(), name, "h3")
	w.must(err)
	for _, h := range []string{"h1", "h2", "h3"} {
		var l net.Listener
		w.must(w.lab.Host(h).Do(func() (err error) {
			l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
			return err
		}))
		t.Cleanup(func() { l.Close() })
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// start starts the controller, and waits until it knows the links.
func (w *world) start() (stop func()) {
	w.t.Helper()
	stop, err := w.program.StartController(w.t.Context(), 4)
	w.must(err)
	return stop
}

// reaches says whether one host's server answers another host.
func (w *world) reaches(from, to string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
	defer cancel()
	return w.lab.Host(from).Do(func() error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(w.lab.Host(to).Addr(), port).String())
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// seen has one host ask another until the inspector has told of it.
func (w *world) seen(from, to string) {
	w.t.Helper()
	flow := netip.AddrPortFrom(w.lab.Host(to).Addr(), port).String()
	found := errors.New("found")
	err := testbed.Poll(w.t.Context(), "the inspector's word", func() error {
		_ = w.reaches(from, to) // it cannot; the inspector hears of it
		ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
		defer cancel()
		err := w.program.Client.Events(ctx, client.EventsRequest{Resume: true, Kinds: []string{name + ".host.sent"}}, func(e client.Event) error {
			if strings.Contains(string(e.Attrs), flow) {
				return found
			}
			return nil
		})
		if errors.Is(err, found) {
			return nil
		}
		return fmt.Errorf("no event of a flow to %s: %w: %s", flow, err, testbed.Tail(w.program.AgentLog("h3"), 5))
	})
	w.must(err)
}

// TestQuarantine has what a host sends go to the inspector and nowhere else, as long as
// that is declared, over a restart of the controller.
func TestQuarantine(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	defer func() { stop() }()
	ways := [][2]string{{"h1", "h2"}, {"h1", "h3"}, {"h2", "h3"}}
	open := func(what string) {
		t.Helper()
		for _, way := range ways {
			w.must(testbed.Poll(t.Context(), what, func() error { return w.reaches(way[0], way[1]) }))
		}
	}
	open("hosts to reach each other")
	addr := func(host string) netip.Addr { return w.lab.Host(host).Addr() }
	hosts := "/api/v1/quarantine/hosts"
	var info HostInfo
	w.must(w.program.Client.Do(t.Context(), "POST", hosts, Host{"h1", addr("h1"), "h3"}, &info))
	if !strings.Contains(info.Problem, `agent "h3"`) || info.Origin != "api" {
		t.Fatalf("without an inspector: %+v", info)
	}
	inspect := func() *testbed.Daemon {
		t.Helper()
		d, err := w.program.StartAgent(t.Context(), "h3", "inspector")
		w.must(err)
		return d
	}
	inspector := inspect()
	defer func() { inspector.Stop() }()
	inForce := func() error {
		var all []HostInfo
		err := w.program.Client.Get(t.Context(), hosts, &all)
		if err == nil && (len(all) != 1 || all[0].Problem != "") {
			err = fmt.Errorf("%+v: %s", all, testbed.Tail(w.program.AgentLog("h3"), 5))
		}
		return err
	}
	w.must(testbed.Poll(t.Context(), "the inspector to announce itself", inForce))
	closed := func() {
		t.Helper()
		if err := w.reaches("h1", "h2"); err == nil {
			t.Error("a host in quarantine reaches another")
		}
		if err := w.reaches("h2", "h3"); err != nil {
			t.Errorf("one that is not does not: %v", err)
		}
	}
	closed()
	w.seen("h1", "h2")
	stop()
	inspector.Stop()
	stop = w.start()
	w.must(testbed.Poll(t.Context(), "the missing inspector to be told", func() error {
		if inForce() == nil {
			return errors.New("the quarantine has no trouble")
		}
		return nil
	}))
	for range 3 {
		closed() // the rules of before are left until new ones can be made
	}
	inspector = inspect()
	w.must(testbed.Poll(t.Context(), "the quarantine after the restart", inForce))
	closed()
	w.must(w.program.Client.Do(t.Context(), "DELETE", hosts+"/h1", nil, nil))
	open("hosts to reach each other again")
}
