package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
)

// mobileDaemon answers like a daemon on a control socket.
func mobileDaemon(t *testing.T, h http.Handler) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return socket
}

func TestMobileStatus(t *testing.T) {
	s := mobile.Status{
		Device: "phone", Active: "wlan0", Requested: "wlan0",
		VNI:   mobile.VNI{Name: "sluice0", MAC: openflow.MAC{2, 0, 0, 0, 0, 1}},
		Lease: &lease.Lease{Address: netip.MustParsePrefix("10.8.0.10/24"), Server: netip.MustParseAddr("10.8.0.1")},
		Interfaces: []mobile.InterfaceStatus{
			{Name: "wlan0", Present: true, Link: true, Sends: true, Receives: true, Signal: -61, Probes: 20, Loss: 0.05, RTT: 1234 * time.Microsecond, Sent: 17},
			{Name: "wlan1", Present: true, Link: true, Silent: true},
			{Name: "wwan0", Present: true, Barred: "no DHCP server answers"},
			{Name: "eth0"},
		},
		Moves:  []mobile.Move{{From: "a", To: "b", Why: "first"}, {From: "b", To: "wlan0", Why: "second", Lease: 2 * time.Millisecond, Switch: 50 * time.Microsecond}},
		Orders: "connected", Drift: []drift.Count{{Thing: "interface wlan0", Times: 7}},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(s) })
	socket := mobileDaemon(t, mux)
	_, out, _ := sluice(t, "mobile", "status", "--socket", socket, "--moves", "1")
	for _, want := range []string{"10.8.0.10/24", "-61", "5 %", "1.23ms", "SENDS", "no DHCP server answers", "second", "wish", "connected", "RESTORED", "interface wlan0  7"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "first") {
		t.Errorf("more than one move:\n%s", out)
	}
	_, out, _ = sluice(t, "mobile", "status", "--socket", socket, "--json")
	var got mobile.Status
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Moves) != 2 || got.Lease.Address != s.Lease.Address {
		t.Errorf("%v: %s", err, out)
	}
}

func TestMobileMove(t *testing.T) {
	var asked mobile.MoveRequest
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/move", func(w http.ResponseWriter, r *http.Request) {
		asked = mobile.MoveRequest{}
		_ = json.NewDecoder(r.Body).Decode(&asked)
		if asked.Interface == "x" {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"title":"Not Found","status":404,"code":"unknown-interface","detail":"the daemon has no such interface: \"x\""}`)
			return
		}
		_ = json.NewEncoder(w).Encode(mobile.Move{From: "wlan0", To: asked.Interface, MakeBeforeBreak: true, Address: "10.8.0.10", Lease: time.Millisecond})
	})
	autos := 0
	mux.HandleFunc("POST /v1/auto", func(w http.ResponseWriter, _ *http.Request) { autos++; fmt.Fprint(w, "{}") })
	socket := mobileDaemon(t, mux)
	for _, c := range []struct {
		args []string
		hold float64
		code int
		want string
	}{
		{[]string{"wwan0"}, -1, command.ExitOK, "make before break  true"},
		{[]string{"wwan0", "--for", "90s"}, 90, command.ExitOK, "10.8.0.10"},
		{[]string{"wwan0", "--once"}, 0, command.ExitOK, "1ms"},
		{[]string{"--auto"}, 0, command.ExitOK, "policy again"},
		{[]string{"x"}, -1, command.ExitFailed, "no such interface"},
		{nil, 0, command.ExitUsage, "INTERFACE is missing"},
		{[]string{"wwan0", "--auto"}, 0, command.ExitUsage, "one argument too many"},
		{[]string{"wwan0", "--for", "-3s"}, 0, command.ExitUsage, "--for"},
		{[]string{"wwan0", "--once", "--for", "3s"}, 0, command.ExitUsage, "--once"},
	} {
		asked = mobile.MoveRequest{}
		code, out, errOut := sluice(t, append([]string{"mobile", "move", "--socket", socket}, c.args...)...)
		if code != c.code || !strings.Contains(out+errOut, c.want) || asked.Hold != c.hold {
			t.Errorf("%v: code %d, asked %+v, %s%s", c.args, code, asked, out, errOut)
		}
	}
	if autos != 1 {
		t.Errorf("%d times auto", autos)
	}
	code, _, errOut := sluice(t, "mobile", "status", "--socket", filepath.Join(t.TempDir(), "none"))
	if code == command.ExitOK || !strings.Contains(errOut, "sluice mobile run") {
		t.Errorf("without a daemon: code %d, %s", code, errOut)
	}
}

// What the configuration's reference calls defaults is what the daemon takes.
func TestMobileConfig(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("ab", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := DefaultMobile()
	c.Device, c.StateDir, c.KeyFile, c.VNI.MAC = "phone", dir, key, "02:00:00:00:00:01"
	c.Interfaces = map[string]MobileInterface{"b": {Order: 1, Cost: 7}, "a": {Order: 2}}
	c.Orders.Server = "https://controller:8443"
	m, err := mobileConfig(c, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Validate(); err != nil {
		t.Errorf("the daemon refuses the defaults: %v", err)
	}
	if m.Interfaces[0] != (mobile.Interface{Name: "b", Cost: 7}) || m.Interfaces[1].Name != "a" || m.Sign == nil || m.Orders == nil || m.VNIMAC != (openflow.MAC{2, 0, 0, 0, 0, 1}) {
		t.Errorf("%+v", m)
	}
	for _, wrong := range []string{"", "xyz", strings.Repeat("ab", 31)} {
		if err := os.WriteFile(key, []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := mobileConfig(c, nil, false); err == nil || !strings.Contains(err.Error(), "64 hex digits") || wrong != "" && strings.Contains(err.Error(), wrong) {
			t.Errorf("key %q: %v", wrong, err)
		}
	}
}
