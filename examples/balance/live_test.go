package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

const port = 8000 // of the virtual address and the servers

// world is three switches in a row: a client at the first, and a server with an agent at each of the
// others; and the program with its service.
type world struct {
	t       *testing.T
	lab     *lab.Lab
	program *testbed.OwnProgram
}

func newWorld(t *testing.T) *world {
	t.Helper()
	topology := lab.Line("balance", 3, delayline.Params{})
	topology.Hosts[1].Agent, topology.Hosts[2].Agent = true, true
	w := &world{t: t, lab: lab.New(t, topology)}
	var err error
	w.program, err = testbed.NewOwnProgram(w.lab, t.TempDir(), name, "h2", "h3")
	w.must(err)
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

// serve starts a server that answers with the name of its host.
func (w *world) serve(host string) *http.Server {
	w.t.Helper()
	var l net.Listener
	w.must(w.lab.Host(host).Do(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	}))
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(out, host) })}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	w.t.Cleanup(func() { s.Close(); <-ended })
	return s
}

// agent starts the agent beside a server.
func (w *world) agent(host string) {
	w.t.Helper()
	d, err := w.program.StartAgent(w.t.Context(), host, "server", "--port", fmt.Sprint(port))
	w.must(err)
	w.t.Cleanup(func() { d.Stop() })
}

// client returns a client at the first host, which uses one connection as long as it can.
func (w *world) client() *http.Client {
	tr := &http.Transport{MaxConnsPerHost: 1, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = w.lab.Host("h1").Do(func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

// ask returns which server answers a client at an address.
func (w *world) ask(c *http.Client, at netip.Addr) (string, error) {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+netip.AddrPortFrom(at, port).String(), nil)
	if err != nil {
		return "", err
	}
	answer, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// TestBalanceLive spreads connections to a virtual address over two servers, one of which ends later.
// A connection goes on over a restart of the controller.
func TestBalanceLive(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	defer func() { stop() }()
	servers := map[string]*http.Server{"h2": w.serve("h2"), "h3": w.serve("h3")}
	for host := range servers {
		w.agent(host)
	}
	b := w.lab.Host("h1").Addr().As4()
	b[3] = 200
	virtual := netip.AddrFrom4(b)
	fronts := "/api/v1/balance/fronts"
	var info FrontInfo
	w.must(w.program.Client.Do(t.Context(), "POST", fronts, Front{"web", virtual, port, []string{"h2", "h3"}}, &info))
	if info.Problem != "" {
		t.Fatalf("%+v", info)
	}
	// Each client has one connection, and uses it to the end.
	one, two := w.client(), w.client()
	var first string
	w.must(testbed.Poll(t.Context(), "a server behind the virtual address", func() (err error) {
		first, err = w.ask(one, virtual)
		return err
	}))
	var second string
	w.must(testbed.Poll(t.Context(), "the other server", func() (err error) {
		two.CloseIdleConnections()
		if second, err = w.ask(two, virtual); err == nil && second == first {
			err = errors.New("it is the same: " + first)
		}
		return err
	}))
	same := func(when string) {
		t.Helper()
		for c, server := range map[*http.Client]string{one: first, two: second} {
			if got, err := w.ask(c, virtual); err != nil || got != server {
				t.Errorf("%s: answered by %q, want %q: %v", when, got, server, err)
			}
		}
	}
	same("at once")
	stop()
	same("without a controller")
	stop = w.start()
	inForce := func() error {
		var all []FrontInfo
		err := w.program.Client.Get(t.Context(), fronts, &all)
		if err == nil && (len(all) != 1 || all[0].Problem != "" || all[0].Connections[first] == 0 || all[0].Connections[second] == 0) {
			err = fmt.Errorf("%+v", all)
		}
		return err
	}
	w.must(testbed.Poll(t.Context(), "the connections after the restart", inForce))
	same("after a restart")

	w.must(servers[first].Close())
	w.must(testbed.Poll(t.Context(), "new connections to go to the server that is left", func() error {
		for range 4 {
			if got, err := w.ask(w.client(), virtual); err != nil || got != second {
				return fmt.Errorf("answered by %q: %w", got, err)
			}
		}
		return nil
	}))
	if got, err := w.ask(two, virtual); err != nil || got != second {
		t.Errorf("the other connection is answered by %q: %v", got, err)
	}
	w.must(w.program.Client.Do(t.Context(), "DELETE", fronts+"/web", nil, nil))
	w.must(testbed.Poll(t.Context(), "the virtual address to end", func() error {
		c := w.client()
		c.Timeout = time.Second
		if got, err := w.ask(c, virtual); err == nil {
			return fmt.Errorf("answered by %q", got)
		}
		return nil
	}))
}
