package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cli/doctor"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
)

// A healthy switch with a controller, ports to hosts and a link that a delay line carries
// gives no alarm; a daemon that has died does, whatever the database still says.
func TestHealthyOpenVSwitchOfALab(t *testing.T) {
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
	s := systemOf(sw)
	vsctl := func(args ...string) {
		t.Helper()
		if _, err := sw.Vsctl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	vsctl("wait-until", "Controller", strings.TrimSpace(controllerOf(t, sw)), "is_connected=true")
	alarms := func() []doctor.Finding {
		return slices.DeleteFunc(s.Run(t.Context(), doctor.Switch), func(f doctor.Finding) bool { return f.Level != doctor.Warn && f.Level != doctor.Fail })
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
	if all := alarms(); len(all) != 1 || all[0].Check != "Open vSwitch" || all[0].Level != doctor.Fail || !strings.Contains(all[0].Found, "daemon") || all[0].Advice == "" {
		t.Errorf("without its daemon: %+v", all)
	}
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
func systemOf(sw *lab.LiveSwitch) *doctor.System {
	output := func(ctx context.Context, name string, args ...string) ([]byte, error) {
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
	return &doctor.System{LookPath: exec.LookPath, Output: output}
}

// What is wrong with a real switch is found, one fault after the other, and a healthy one
// has none.
func TestOpenVSwitchOfALab(t *testing.T) {
	l := lab.New(t, lab.Line("docovs", 1, delayline.Params{}))
	sw := l.Switch("s1")
	s := systemOf(sw)
	vsctl := func(args ...string) string {
		t.Helper()
		out, err := sw.Vsctl(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	finds := func(what string, want doctor.Level, says string) {
		t.Helper()
		var found []doctor.Finding
		deadline := time.After(time.Minute)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			found = s.Run(t.Context(), doctor.Switch)
			for _, f := range found {
				if f.Level == want && strings.Contains(f.Found+f.Advice, says) {
					return
				}
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s: waited in vain for %q: %+v", what, says, found)
			}
		}
	}
	finds("nobody answers as controller", doctor.Fail, "not connected to tcp:"+l.ControllerAddr().String())
	bridge := vsctl("list-br")
	port := ""
	for _, p := range strings.Fields(vsctl("list-ports", bridge)) {
		port = p
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := sw.Command(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	run("ethtool", "-K", port, "gro", "on")
	finds("an offload", doctor.Warn, fmt.Sprintf("ethtool -K %s gro off", port))
	run("ip", "link", "set", port, "down")
	finds("a port that is down", doctor.Warn, "are down: "+port)
	run("ip", "link", "del", port)
	finds("a port that has gone", doctor.Fail, "port "+port+" is not there")
	vsctl("set", "bridge", bridge, "fail_mode=standalone")
	finds("standalone", doctor.Warn, "fail_mode=secure")
}
