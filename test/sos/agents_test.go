package sos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos/agent"
)

// agentEnv makes the test binary run as an agent, with the configuration in the variable.
// So agents can be killed like real ones.
const agentEnv = "SOS_INTEGRATION_AGENT"

func TestMain(m *testing.M) {
	if text := os.Getenv(agentEnv); text != "" {
		if err := runAgent(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func runAgent(text string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var cfg agent.Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.Close()
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

// agentProcess is an agent on a host of the lab.
type agentProcess struct {
	t    testing.TB
	name string
	cfg  agent.Config
	cmd  *exec.Cmd
	done chan error
}

// agentPort is the port of the agents' control servers.
const agentPort = 8440

// startAgent runs an agent on a host. change may alter its configuration.
func (w *world) startAgent(host string, change func(*agent.Config)) *agentProcess {
	w.t.Helper()
	h := w.lab.Host(host)
	cfg := agent.Config{
		Listen: netip.AddrPortFrom(h.ControlAddr(), agentPort).String(), DataAddr: h.Addr(), DataPorts: []uint16{7444, 7445},
		Cert: filepath.Join(w.keys, host+".crt"), Key: filepath.Join(w.keys, host+".key"), CA: filepath.Join(w.keys, "ca.crt"),
	}
	if change != nil {
		change(&cfg)
	}
	a := &agentProcess{t: w.t, name: host, cfg: cfg}
	w.agents[host] = a
	w.t.Cleanup(a.kill)
	a.start(w)
	return a
}

// start starts the process. It can be called again after kill.
func (a *agentProcess) start(w *world) {
	a.t.Helper()
	text, err := json.Marshal(a.cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	a.cmd = w.lab.Host(a.name).Command(context.WithoutCancel(a.t.Context()), os.Args[0])
	a.cmd.Env = append(os.Environ(), agentEnv+"="+string(text))
	a.cmd.Stderr = os.Stderr
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		a.t.Fatalf("agent %s does not start", a.name)
	}
	done := make(chan error, 1)
	cmd := a.cmd
	go func() { done <- cmd.Wait() }()
	a.done = done
}

// kill ends the process as kill -9 does.
func (a *agentProcess) kill() {
	if a.cmd == nil {
		return
	}
	_ = a.cmd.Process.Kill()
	<-a.done
	a.cmd = nil
}

// terminate asks the process to end, and waits until it has.
func (a *agentProcess) terminate() {
	a.t.Helper()
	a.signal(syscall.SIGTERM)
	if err := <-a.done; err != nil {
		a.t.Errorf("agent %s: %v", a.name, err)
	}
	a.cmd = nil
}

// signal sends a signal, such as SIGSTOP.
func (a *agentProcess) signal(s syscall.Signal) { _ = a.cmd.Process.Signal(s) }

// issue creates certificates for the controller and the agents.
func (w *world) issue(hosts []string) {
	w.t.Helper()
	ca, err := pki.Init(w.keys, "integration", time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	requests := []pki.Request{{Role: pki.RoleController, Name: "controller"}}
	for _, h := range hosts {
		requests = append(requests, pki.Request{Role: pki.RoleAgent, Name: h, Hosts: []string{w.lab.Host(h).ControlAddr().String()}})
	}
	for _, r := range requests {
		pair, err := ca.Issue(r)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := pair.Write(w.keys, r.Name); err != nil {
			w.t.Fatal(err)
		}
	}
}
