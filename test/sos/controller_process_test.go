package sos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
)

// controllerAPI is the address of the process's API, in the control namespace.
const controllerAPI = "127.0.0.1:8080"

// processWorld is a world whose controller is the real program, so that it can be killed.
type processWorld struct {
	*world
	binary, dir string
	cmd         *exec.Cmd
	done        chan error
}

// newProcessWorld is like newWorld, with a controller process.
func newProcessWorld(t testing.TB, top lab.Topology) *processWorld {
	t.Helper()
	live.Test(t)
	binary := selfbuild.Binary(t)
	w := &world{t: t, lab: lab.New(t, top), keys: t.TempDir(), agents: map[string]*agentProcess{}}
	p := &processWorld{world: w, binary: binary, dir: t.TempDir()}
	w.issue([]string{"x", "y"})
	t.Cleanup(func() {
		if t.Failed() {
			p.describe()
		}
		p.kill()
	})
	p.start()
	w.controller = &controller{rest: p.client()}
	t.Cleanup(w.rest.Close)
	w.coldStart()
	for _, host := range []string{"x", "y"} {
		w.startAgent(host, nil)
		w.addAgent(host)
	}
	w.post("whitelist", entry{Clients: []string{"0.0.0.0/0"}, Servers: []string{w.serverAddr(80).Addr().String()}, Ports: []string{"80-89"}}, nil)
	p.ready()
	return p
}

// start starts the controller on the same data folder. It can be called again after kill.
func (p *processWorld) start() {
	p.t.Helper()
	file := filepath.Join(p.dir, "controller.yaml")
	text := fmt.Sprintf(`data_dir: %[1]s/data
api: {listen: %[2]s}
openflow: {listen: ["%[3]v"], plaintext: true}
network:
  discovery: {interval: 500ms, timeout: 10s}
agents:
  tls: {cert: %[4]s/controller.crt, key: %[4]s/controller.key, ca: %[4]s/ca.crt}
`, p.dir, controllerAPI, p.lab.ControllerAddr(), p.keys)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := p.lab.Control().Command(context.WithoutCancel(p.t.Context()), p.binary, "controller", "--config", file)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	p.cmd, p.done = cmd, done
}

// kill ends the process as kill -9 does.
func (p *processWorld) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	p.cmd = nil
}

func (p *processWorld) log() string { return filepath.Join(p.dir, "controller.log") }

// client returns a client of the process's API, with the token that the process has
// created.
func (p *processWorld) client() *client.Client {
	p.t.Helper()
	var token []byte
	p.eventually("the controller has made a token", func() (ok bool) {
		var err error
		token, err = os.ReadFile(filepath.Join(p.dir, "data", "token"))
		return err == nil && len(token) > 0
	})
	c, err := client.New(client.Options{
		Server: "http://" + controllerAPI, Token: strings.TrimSpace(string(token)), Dial: p.lab.Control().DialContext,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.eventually("the API answers", func() bool { return c.Get(p.t.Context(), "/api/v1/sos/status", nil) == nil })
	return c
}

// try is like get for a controller that may not be running, and reports whether it
// answered.
func (p *processWorld) try(path string, out any) bool {
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
	defer cancel()
	return p.rest.Get(ctx, "/api/v1/"+path, out) == nil
}

// ready waits until the controller knows switches, links and agents, and the switches punt
// the first packets of connections.
func (p *processWorld) ready() {
	p.t.Helper()
	p.eventually("links and agents are known", func() bool {
		var links []struct {
			Latency float64 `json:"latency_milliseconds"`
		}
		if !p.try("network/links", &links) || len(links) != 2 || links[0].Latency == 0 || links[1].Latency == 0 {
			return false
		}
		var all []agents.AgentInfo
		if !p.try("sos/agents", &all) || len(all) != 2 {
			return false
		}
		for _, a := range all {
			if a.State != agents.Up || len(a.Places) == 0 || len(a.DataPorts) == 0 {
				return false
			}
		}
		return true
	})
	punts := fmt.Sprintf("priority=%d,", network.StageSelect.Base()+rule.SelectConnection)
	p.eventually("punt rules are in the switches", func() bool {
		return strings.Contains(p.flows("s1"), punts) && strings.Contains(p.flows("s2"), punts)
	})
}

// describe logs the state of a world in which a test has failed.
func (p *processWorld) describe() {
	text, err := os.ReadFile(p.log())
	p.t.Logf("controller: %v\n%s", err, text)
	for _, s := range p.switches() {
		flows, err := p.lab.Switch(s).Ofctl(context.Background(), "dump-flows")
		p.t.Logf("%s: %v\n%s", s, err, flows)
	}
}
