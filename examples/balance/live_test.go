package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/pki"
)

const port = 8000 // of the virtual address and the servers

// world is three switches in a row: a client at the first, and a server with an agent at each of the
// others; and the program with its service.
type world struct {
	t           *testing.T
	lab         *lab.Lab
	dir, binary string
	address     string // of the API
	controller  *testbed.Daemon
	*client.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	topology := lab.Line("balance", 3, delayline.Params{})
	topology.Hosts[1].Agent, topology.Hosts[2].Agent = true, true
	w := &world{t: t, lab: lab.New(t, topology), dir: t.TempDir()}
	w.address = w.lab.ControllerAddr().Addr().String()
	ca, err := pki.Init(w.dir, "balance", time.Hour)
	w.must(err)
	w.issue(ca, pki.Request{Role: pki.RoleController, Name: "controller", Hosts: []string{w.address}})
	for _, h := range []string{"h2", "h3"} {
		own := w.lab.Host(h).ControlAddr()
		w.issue(ca, pki.Request{Role: pki.RoleAgent, Name: h, Hosts: []string{own.String()}})
		w.write(h+".yaml", fmt.Sprintf(`name: %[5]s
control: {listen: "%[2]v:8440", tls: {cert: %[1]s/%[5]s.crt, key: %[1]s/%[5]s.key, ca: %[1]s/ca.crt}}
data: {address: %[3]v}
announce: {server: "%[4]s"}
`, w.dir, own, w.lab.Host(h).Addr(), w.url(), h))
	}
	self, err := os.Executable()
	w.must(err)
	w.binary = filepath.Join(w.dir, name)
	w.must(os.Symlink(self, w.binary))
	w.write("controller.yaml", fmt.Sprintf(`data_dir: %[1]s/state
api: {listen: %[2]s:8080, tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}}
openflow: {listen: ["%[3]v"], plaintext: true}
network: {discovery: {interval: 500ms, timeout: 4s}}
sos: {tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}}
`, w.dir, w.address, w.lab.ControllerAddr()))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) issue(ca *pki.CA, r pki.Request) {
	w.t.Helper()
	pair, err := ca.Issue(r)
	w.must(err)
	w.must(pair.Write(w.dir, r.Name))
}

func (w *world) write(file, text string) {
	w.t.Helper()
	w.must(os.WriteFile(filepath.Join(w.dir, file), []byte(text), 0o600))
}

func (w *world) url() string { return "https://" + w.address + ":8080" }

// start starts the controller, and waits until it knows the links.
func (w *world) start() (stop func()) {
	w.t.Helper()
	var err error
	w.controller, err = testbed.StartDaemon(context.WithoutCancel(w.t.Context()), w.lab.Control(), filepath.Join(w.dir, "controller.log"), w.binary, "controller", "--config", filepath.Join(w.dir, "controller.yaml"))
	w.must(err)
	var token []byte
	w.must(testbed.Poll(w.t.Context(), "the token", func() (err error) {
		token, err = os.ReadFile(filepath.Join(w.dir, "state", "token"))
		return err
	}))
	trust, err := pki.Client(pki.Files{CA: filepath.Join(w.dir, "ca.crt")}, pki.RoleController)
	w.must(err)
	w.Client, err = client.New(client.Options{Server: w.url(), Token: strings.TrimSpace(string(token)), TLS: trust, Dial: w.lab.Control().DialContext})
	w.must(err)
	w.must(testbed.Poll(w.t.Context(), "the links", func() error {
		var links []json.RawMessage
		err := w.Get(w.t.Context(), "/api/v1/network/links", &links)
		if err == nil && len(links) != 4 {
			err = fmt.Errorf("%d of 4", len(links))
		}
		return err
	}))
	return func() { w.Client.Close(); w.controller.Stop() }
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
	d, err := testbed.StartDaemon(context.WithoutCancel(w.t.Context()), w.lab.Host(host), filepath.Join(w.dir, host+".log"), w.binary,
		"server", "--config", filepath.Join(w.dir, host+".yaml"), "--port", fmt.Sprint(port))
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
	w.must(w.Do(t.Context(), "POST", fronts, Front{"web", virtual, port, []string{"h2", "h3"}}, &info))
	if info.Trouble != "" {
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
		err := w.Get(t.Context(), fronts, &all)
		if err == nil && (len(all) != 1 || all[0].Trouble != "" || all[0].Connections[first] == 0 || all[0].Connections[second] == 0) {
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
	w.must(w.Do(t.Context(), "DELETE", fronts+"/web", nil, nil))
	w.must(testbed.Poll(t.Context(), "the virtual address to end", func() error {
		c := w.client()
		c.Timeout = time.Second
		if got, err := w.ask(c, virtual); err == nil {
			return fmt.Errorf("answered by %q", got)
		}
		return nil
	}))
}
