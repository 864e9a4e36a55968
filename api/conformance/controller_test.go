package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
)

const configuration = `data_dir: %[1]s/state
store: {kind: memory}
api:
  listen: %[2]s
  tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}
openflow: {listen: ["%[3]s"]}
network:
  switches: {00000000000000a1: {name: edge}}
handover:
  enabled: true
  domain: north
  borders:
    - {port: 00000000000000a1/1}
    - {port: 00000000000000a1/2, peer: south}
  neighbours:
    south:
      url: https://127.0.0.1:1
      prefixes: [10.30.0.0/16]
      tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}
  classes:
    cars: {policy: seamless}
  pools:
    own: {prefix: 10.20.0.0/16, gateway: 10.20.0.1, class: cars}
    from-south: {prefix: 10.30.0.0/16, gateway: 10.30.0.1, home: south}
  coverage:
    yard: {port: 00000000000000a2/4, x: 0, y: 0, radius: 1000}
`

// controller is the program under test.
type controller struct {
	url, ca, token string
	openflow       net.Addr
	log            *logFile
	client         *client.Client
}

// start builds the program, runs it with all services, and ends it with the test.
func start(t *testing.T) *controller {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.Init(dir, "conformance", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{Role: pki.RoleController, Name: "controller", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(dir, "controller"); err != nil {
		t.Fatal(err)
	}
	api, switches := free(t), free(t)
	file := filepath.Join(dir, "controller.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, dir, api, switches), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &controller{url: "https://" + api.String(), ca: filepath.Join(dir, pki.CACertFile), openflow: switches, log: &logFile{}}
	// Ended below, and killed if it does not end then.
	ctx, kill := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, selfbuild.Binary(t), "controller", "--config", file)
	cmd.Stderr = c.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer kill()
		defer time.AfterFunc(time.Minute, kill).Stop()
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("the controller has ended: %v\n%s", err, c.log.tail())
		}
	})
	eventually(t, "the controller has a token", c.log, func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "state", "token"))
		c.token = strings.TrimSpace(string(b))
		return err == nil
	})
	trust, err := pki.Client(pki.Files{CA: c.ca})
	if err != nil {
		t.Fatal(err)
	}
	if c.client, err = client.New(client.Options{Server: c.url, Token: c.token, TLS: trust, Timeout: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.Close)
	eventually(t, "the controller is ready", c.log, func() bool {
		return c.client.Do(t.Context(), http.MethodGet, "/api/v1/handover/status", nil, nil) == nil
	})
	return c
}

// free is an address that nobody listens at.
func free(t *testing.T) net.Addr {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr()
}

// connectSwitches joins two switches by a link, with a host at each.
func (c *controller) connectSwitches(t *testing.T) {
	t.Helper()
	const trunk = 3
	var ends [2]*fake.Switch
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	for i := range ends {
		ends[i] = fake.NewSwitch(fake.Options{DPID: openflow.DatapathID(0xa1 + i), Ports: 6, OnOutput: func(port uint32, frame []byte) {
			if port == trunk {
				_, _ = ends[1-i].Receive(trunk, frame) // a switch that has ended takes none
			}
		}})
	}
	for _, s := range ends {
		t.Cleanup(s.Close)
		all.Go(func() {
			if err := s.Dial(t.Context(), c.openflow); err != nil {
				t.Errorf("switch: %v", err)
			}
		})
	}
	var links []any
	eventually(t, "the link is found", c.log, func() bool {
		return c.client.Get(t.Context(), "/api/v1/network/links", &links) == nil && len(links) == 2
	})
	var hosts []any
	eventually(t, "the hosts are known", c.log, func() bool {
		for i, s := range ends {
			frame := packet.AppendARPRequest(nil, hostMAC(i), hostIP(i), hostIP(1-i), 0)
			if _, err := s.Receive(5, frame); err != nil {
				t.Fatal(err)
			}
		}
		return c.client.Get(t.Context(), "/api/v1/network/hosts", &hosts) == nil && len(hosts) == 2
	})
}

// define gives the lists of the API something to show. A class of traffic is not among
// it: that needs switches with queues.
func (c *controller) define(t *testing.T) {
	t.Helper()
	for _, d := range []struct{ method, path, body string }{
		{"POST", "sos/whitelist", `{"name":"kept","clients":["10.0.0.1"],"servers":["10.0.0.2"],"ports":["80"]}`},
		{"POST", "sos/agents", `{"name":"agent-1","url":"https://127.0.0.1:2","addrs":["10.0.0.3"]}`},
		{"PUT", "handover/classes/vans", `{"policy":"saving"}`},
		{"PUT", "handover/devices/car-1", `{"macs":["02:00:00:00:01:01","02:00:00:00:01:02"],"pool":"own"}`},
		{"POST", "qos/critical", `{"name":"backup","rate":"1Mbit","match":{"ip_proto":"tcp","ipv4_dst":"10.0.0.2"}}`},
		{"POST", "handover/positions", `[{"device":"car-1","x":1,"y":1,"speed":1,"heading":0}]`},
	} {
		if err := c.client.Do(t.Context(), d.method, "/api/v1/"+d.path, json.RawMessage(d.body), nil); err != nil {
			t.Fatalf("%s %s: %v", d.method, d.path, err)
		}
	}
}

// eventually waits for what the program does by itself, with a deadline.
func eventually(t *testing.T, what string, log *logFile, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s\n%s", what, log.tail())
		case <-tick.C:
		}
	}
}

// logFile keeps the end of what the program writes.
type logFile struct {
	mu sync.Mutex
	b  []byte
}

const logKept = 32 << 10

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	if len(l.b) > 2*logKept {
		l.b = bytes.Clone(l.b[len(l.b)-logKept:])
	}
	return len(p), nil
}

func (l *logFile) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}
