package main

import (
	"context"
	"encoding/json"
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
	"github.com/sluice-net/sluice/pki"
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
	t           *testing.T
	lab         *lab.Lab
	dir, binary string
	address     string // of the API
	controller  *testbed.Daemon
	*client.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	topology := lab.Line("quarantine", 3, delayline.Params{})
	topology.Hosts[2].Agent = true
	w := &world{t: t, lab: lab.New(t, topology), dir: t.TempDir()}
	w.address = w.lab.ControllerAddr().Addr().String()
	ca, err := pki.Init(w.dir, "quarantine", time.Hour)
	w.must(err)
	pair, err := ca.Issue(pki.Request{Role: pki.RoleController, Name: "controller", Hosts: []string{w.address}})
	w.must(err)
	w.must(pair.Write(w.dir, "controller"))
	own := w.lab.Host("h3").ControlAddr()
	pair, err = ca.Issue(pki.Request{Role: pki.RoleAgent, Name: "h3", Hosts: []string{own.String()}})
	w.must(err)
	w.must(pair.Write(w.dir, "h3"))
	agent := fmt.Sprintf(`name: h3
control: {listen: "%[2]v:8440", tls: {cert: %[1]s/h3.crt, key: %[1]s/h3.key, ca: %[1]s/ca.crt}}
data: {address: %[3]v}
announce: {server: "%[4]s"}
`, w.dir, own, w.lab.Host("h3").Addr(), w.url())
	w.must(os.WriteFile(filepath.Join(w.dir, "inspector.yaml"), []byte(agent), 0o600))
	self, err := os.Executable()
	w.must(err)
	w.binary = filepath.Join(w.dir, name)
	w.must(os.Symlink(self, w.binary))
	config := fmt.Sprintf(`data_dir: %[1]s/state
api: {listen: %[2]s:8080, tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}}
openflow: {listen: ["%[3]v"], plaintext: true}
network: {discovery: {interval: 500ms, timeout: 4s}}
sos: {tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}}
`, w.dir, w.address, w.lab.ControllerAddr())
	w.must(os.WriteFile(filepath.Join(w.dir, "controller.yaml"), []byte(config), 0o600))
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

func (w *world) url() string { return "https://" + w.address + ":8080" }

// start starts the controller, and waits until hosts reach each other, or it knows of
// quarantine.
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
		err := w.Events(ctx, client.EventsRequest{Resume: true, Kinds: []string{name + ".host.sent"}}, func(e client.Event) error {
			if strings.Contains(string(e.Attrs), flow) {
				return found
			}
			return nil
		})
		if errors.Is(err, found) {
			return nil
		}
		return fmt.Errorf("no event of a flow to %s: %w: %s", flow, err, testbed.Tail(filepath.Join(w.dir, "inspector.log"), 5))
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
	w.must(w.Do(t.Context(), "POST", hosts, Host{"h1", addr("h1"), "h3"}, &info))
	if !strings.Contains(info.Trouble, `agent "h3"`) || info.Origin != "api" {
		t.Fatalf("without an inspector: %+v", info)
	}
	inspect := func() *testbed.Daemon {
		t.Helper()
		d, err := testbed.StartDaemon(context.WithoutCancel(t.Context()), w.lab.Host("h3"), filepath.Join(w.dir, "inspector.log"), w.binary,
			"inspector", "--config", filepath.Join(w.dir, "inspector.yaml"))
		w.must(err)
		return d
	}
	inspector := inspect()
	defer func() { inspector.Stop() }()
	inForce := func() error {
		var all []HostInfo
		err := w.Get(t.Context(), hosts, &all)
		if err == nil && (len(all) != 1 || all[0].Trouble != "") {
			err = fmt.Errorf("%+v: %s", all, testbed.Tail(filepath.Join(w.dir, "inspector.log"), 5))
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
	w.must(w.Do(t.Context(), "DELETE", hosts+"/h1", nil, nil))
	open("hosts to reach each other again")
}
