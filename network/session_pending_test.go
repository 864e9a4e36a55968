package network_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// silence opens connections from a loopback address that send nothing, and keeps them open.
func silence(t *testing.T, n *network.Network, from string, count int) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range count {
		conn, err := d.Dial("tcp", n.Addr()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// keepDialing makes a switch connect, and connect again when it is refused, as switches do.
func keepDialing(t *testing.T, n *network.Network, s *fake.Switch) {
	t.Helper()
	networktest.Background(t, func(ctx context.Context) error {
		again := time.NewTicker(20 * time.Millisecond)
		defer again.Stop()
		for ctx.Err() == nil {
			_ = s.Dial(ctx, n.Addr()[0]) // refused; it tries again
			select {
			case <-ctx.Done():
			case <-again.C:
			}
		}
		return nil
	})
}

// TestSilentConnectionsKeepNoSwitchOut checks that connections which send nothing do not keep
// switches from connecting, however many they are: those of other addresses never, and those of a
// switch's own address not for long.
func TestSilentConnectionsKeepNoSwitchOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from string }{
		{"of another address", "127.0.0.2"},
		{"of the switch's address", "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, _ := networktest.Start(t, network.Config{MaxSwitches: 300, RequestTimeout: time.Minute})
			silence(t, n, c.from, 400)
			keepDialing(t, n, fake.NewSwitch(fake.Options{DPID: 1, Ports: 2}))
			networktest.Up(t, n, 1)
		})
	}
}

// TestNamedSwitchesHaveTheirPlace checks that at the limit of sessions, switches that the
// configuration names can still connect, and others cannot.
func TestNamedSwitchesHaveTheirPlace(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{MaxSwitches: 2, Names: map[openflow.DatapathID]string{9: "core"}})
	for d := openflow.DatapathID(1); d <= 2; d++ {
		networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: d, Ports: 2}), d)
	}
	if err := fake.NewSwitch(fake.Options{DPID: 3, Ports: 2}).Dial(t.Context(), n.Addr()[0]); err != nil {
		t.Error(err)
	}
	if _, is := n.Switch(3); is {
		t.Error("a third switch of two got in")
	}
	networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: 9, Ports: 2}), 9)
}

// TestComingAndGoingFillsNoLog checks that switches which the configuration does not name, and
// which reconnect repeatedly, do not fill the log, and neither do refused connections.
func TestComingAndGoingFillsNoLog(t *testing.T) {
	t.Parallel()
	var out logtest.Log
	n, _ := networktest.Start(t, network.Config{Log: out.Logger()})
	began := time.Now()
	const times = 30
	for range times {
		stop := networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: 1, Ports: 1}), 1)
		stop()
		networktest.Down(t, n, 1)
		conn := dial(t, n)
		_, _ = conn.Write(make([]byte, 8))
		ended(t, "a stranger", conn)
	}
	most := 2 * (10 + int(time.Since(began)/time.Second) + 1)
	if lines := strings.Count(out.String(), "\n"); lines == 0 || lines > most {
		t.Errorf("%d comings and goings wrote %d lines, want at most %d", times, lines, most)
	}
}
