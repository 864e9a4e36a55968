package doctor

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
)

// A healthy switch with a controller, ports to hosts and a link that a delay line carries
// gives no alarm; a daemon that has died does, whatever the database still says.
func TestHealthyOpenVSwitchOfALab(t *testing.T) {
	live.Test(t)
	l := lab.New(t, lab.Line("dochlt", 2, delayline.Params{Delay: time.Millisecond}))
	ln, err := l.Control().Listen("tcp", l.ControllerAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := network.New(network.Config{Listeners: []net.Listener{ln}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	sw := l.Switch("s1")
	s := systemOf(t, sw)
	vsctl := func(args ...string) {
		t.Helper()
		if _, err := sw.Vsctl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	vsctl("wait-until", "Controller", strings.TrimSpace(controllerOf(t, sw)), "is_connected=true")
	alarms := func() []Finding {
		return slices.DeleteFunc(s.switches(t.Context()), func(f Finding) bool { return f.Level != Warn && f.Level != Fail })
	}
	if all := alarms(); len(all) > 0 {
		t.Errorf("a healthy switch: %+v", all)
	}
	vsctl("set", "bridge", "br0", "other_config:datapath-id=0x1")
	for _, f := range alarms() {
		if strings.Contains(f.Found, "datapath ID") {
			t.Errorf("a short datapath ID: %+v", f)
		}
	}
	if err := sw.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	level(t, alarms(), "Open vSwitch", Fail, "daemon")
}

func controllerOf(t *testing.T, sw *lab.LiveSwitch) string {
	t.Helper()
	out, err := sw.Vsctl(t.Context(), "--bare", "--columns=_uuid", "list", "Controller")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// systemOf is a System whose programs run beside a switch of a lab.
func systemOf(t *testing.T, sw *lab.LiveSwitch) *System {
	t.Helper()
	s := machine(t, nil, map[string]string{"ovs-vsctl": "", "ovs-appctl": "", "ip": "", "ethtool": ""})
	s.Output = func(ctx context.Context, name string, args ...string) ([]byte, error) {
		var out string
		var err error
		switch name {
		case "ovs-vsctl":
			out, err = sw.Vsctl(ctx, args...)
		case "ovs-appctl":
			out, err = sw.Appctl(ctx, args...)
		default:
			return sw.Command(ctx, name, args...).Output()
		}
		return []byte(out), err
	}
	return s
}
