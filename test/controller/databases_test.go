package controller

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services"
	"github.com/sluice-net/sluice/services/qos"
)

// TestSwitchesAreToldToReport: with nothing but configuration, Open vSwitch pushes
// its counters, also after its database has been changed behind our back, and is given no
// queues that nobody has asked for; a controller that is configured to poll again leaves no
// trace of that, nor one without the QoS service of its queues.
func TestSwitchesAreToldToReport(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("sflow", 2, delayline.Params{}))
	rows := func(sw string) string {
		out, err := l.Switch(sw).Vsctl(t.Context(), "--bare", "--columns=targets,polling", "list", "sFlow")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	queues := func(sw string) bool {
		out, err := l.Switch(sw).Vsctl(t.Context(), "--bare", "--columns=_uuid", "list", "QoS")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out) != ""
	}
	start := func(measure, ports string) (c *controller.Controller, stop func()) {
		cfg := services.DefaultConfig()
		cfg.DataDir, cfg.Store.Kind = t.TempDir(), "memory"
		cfg.OVSDB.Switches = map[openflow.DatapathID]string{1: l.Switch("s1").Database(), 2: l.Switch("s2").Database()}
		cfg.Network.Measure, cfg.Network.StatsInterval, config.Of[*qos.Section](cfg).Enabled = measure, time.Second, measure == "sflow"
		config.Of[*qos.Section](cfg).Queues = ports
		api, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o := controller.Options{Services: services.Definitions(), Config: cfg, Log: slog.New(slog.DiscardHandler), API: api}
		err = l.Control().Do(func() error {
			ln, err := net.Listen("tcp", l.ControllerAddr().String())
			if err != nil || measure == "poll" {
				o.OpenFlow = []net.Listener{ln}
				return err
			}
			o.OpenFlow = []net.Listener{ln}
			o.SFlow, err = net.ListenPacket("udp", netip.AddrPortFrom(l.ControllerAddr().Addr(), 0).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if o.SFlow != nil {
			at := netip.MustParseAddrPort(o.SFlow.LocalAddr().String())
			cfg.Network.SFlow.Listen, cfg.Network.SFlow.Collector = config.Address{AddrPort: at}, config.Address{AddrPort: at}
		}
		ctx, cancel := context.WithCancel(t.Context())
		if c, err = controller.New(ctx, o); err != nil {
			cancel()
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		return c, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	c, stop := start("sflow", "classes")
	at := network.PortRef{Switch: 2, Port: 1}
	reported := func() time.Time {
		r, _ := c.Network().Traffic().PortBy(at, stats.Pushed)
		return r.At
	}
	eventually(t, "switch 2 to report", func() bool { return !reported().IsZero() })
	if queues("s1") || queues("s2") {
		t.Error("ports have queues although there is no class")
	}
	stop()
	c, stop = start("sflow", "connect")
	eventually(t, "the ports to have queues", func() bool { return queues("s1") && queues("s2") })
	eventually(t, "switch 2 to report", func() bool { return !reported().IsZero() })
	if got := rows("s1"); !strings.HasSuffix(got, "1") {
		t.Errorf("switch 1 is told %q, want to report each second", got)
	}
	if _, err := l.Switch("s2").Vsctl(t.Context(), "clear", "Bridge", "br0", "sflow"); err != nil {
		t.Fatal(err)
	}
	cleared := time.Now()
	eventually(t, "switch 2 to report again", func() bool { return reported().After(cleared.Add(2 * time.Second)) })
	if _, ok := c.Network().Traffic().PortBy(at, stats.Polled); ok {
		t.Error("counters were polled as well")
	}
	stop()
	if rows("s1") == "" || rows("s2") == "" {
		t.Error("stopping the controller has stopped the reports")
	}
	_, stop = start("poll", "connect")
	defer stop()
	eventually(t, "the switches to forget", func() bool { return rows("s1") == "" && rows("s2") == "" && !queues("s1") && !queues("s2") })
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}
