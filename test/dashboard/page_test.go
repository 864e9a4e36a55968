package dashboard

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services"
	"github.com/sluice-net/sluice/services/cinema"
	"github.com/sluice-net/sluice/services/sos"
)

// linkRate is the speed of all links, in bit/s.
const linkRate = 10e6

// TestPage lets Chromium use the dashboard against a line of three switches that
// carries traffic.
func TestPage(t *testing.T) {
	begin(t, "npm", "chromium", "iperf3")
	l := lab.New(t, lab.Line("page", 3, delayline.Params{}))
	startClassifiers(t, l)
	server, token := startController(t, l)
	startTraffic(t, l)
	visit(t, "page", server, token, "SLUICE_SOURCE="+l.Host("h1").Addr().String(), "SLUICE_TARGET="+l.Host("h3").Addr().String())
}

// startClassifiers runs a classifier beside each switch until the test ends: the
// lab's switches forward in user space.
func startClassifiers(t *testing.T, l *lab.Lab) {
	t.Helper()
	binary := selfbuild.Binary(t)
	for _, s := range l.Topology().Switches {
		sw := l.Switch(s.Name)
		d, err := testbed.StartDaemon(context.WithoutCancel(t.Context()), sw, filepath.Join(t.TempDir(), "log"), binary, "classifier", "--database", sw.Database())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Stop)
	}
}

// startController runs a controller for a lab until the test ends.
func startController(t *testing.T, l *lab.Lab) (server, token string) {
	t.Helper()
	switches, err := l.Control().Listen("tcp", l.ControllerAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	return runController(t, settings(t, l), switches)
}

// runController runs a controller in this process until the test ends.
func runController(t *testing.T, cfg *config.Controller, switches net.Listener) (server, token string) {
	t.Helper()
	api, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c, err := controller.New(ctx, controller.Options{
		Services: services.Definitions(),
		Config:   cfg, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		OpenFlow: []net.Listener{switches}, API: api,
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("controller: %v", err)
		}
	})
	secret, err := os.ReadFile(filepath.Join(cfg.DataDir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + api.Addr().String(), strings.TrimSpace(string(secret))
}

func settings(t *testing.T, l *lab.Lab) *config.Controller {
	t.Helper()
	cfg := services.DefaultConfig()
	cfg.DataDir, cfg.Store.Kind = t.TempDir(), "memory"
	config.Of[*sos.Section](cfg).Enabled, config.Of[*cinema.Section](cfg).Enabled = false, false
	cfg.Network.Discovery.Interval, cfg.Network.Discovery.Timeout = 300*time.Millisecond, 3*time.Second
	cfg.Network.StatsInterval = time.Second
	cfg.Network.Switches, cfg.OVSDB.Switches = map[openflow.DatapathID]config.SwitchIs{}, map[openflow.DatapathID]string{}
	for _, s := range l.Topology().Switches {
		is := config.SwitchIs{Name: s.Name, Rewrite: "auto", Bundles: "auto", Capacity: map[int]units.Rate{}}
		for port := 1; port <= 3; port++ {
			is.Capacity[port] = linkRate
		}
		dpid := openflow.DatapathID(s.DPID)
		cfg.Network.Switches[dpid], cfg.OVSDB.Switches[dpid] = is, l.Switch(s.Name).Database()
	}
	return cfg
}

// startTraffic sends UDP from h1 to h3 until the test ends: to port 5201 what the
// page will make a class of, and beside it what fills the links.
func startTraffic(t *testing.T, l *lab.Lab) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running []*exec.Cmd
	t.Cleanup(func() {
		cancel()
		for _, cmd := range running {
			_ = cmd.Wait() // killed
		}
	})
	start := func(host string, args ...string) {
		cmd := l.Host(host).Command(ctx, args[0], args[1:]...)
		cmd.WaitDelay = time.Second
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	to := l.Host("h3").Addr().String()
	waitReachable(t, l.Host("h1"), to)
	for _, flow := range []struct {
		port uint16
		rate string
	}{{5201, "1M"}, {5202, "6M"}} {
		port := strconv.Itoa(int(flow.port))
		start("h3", "iperf3", "--server", "--port", port)
		if err := testbed.WaitListening(ctx, l.Host("h3"), flow.port); err != nil {
			t.Fatal(err)
		}
		start("h1", "iperf3", "--client", to, "--port", port, "--udp", "--bitrate", flow.rate, "--length", "1000", "--time", "120")
	}
	start("h2", "ping", "-i", "0.5", to)
}

// waitReachable waits until the network carries packets.
func waitReachable(t *testing.T, from testbed.Place, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for from.Command(ctx, "ping", "-c", "1", "-W", "1", to).Run() != nil {
		if ctx.Err() != nil {
			t.Fatalf("%s is not reached", to)
		}
	}
}
