package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/sos"
)

// shortPort is where the server of the transfer that ends listens, longPort that of the
// other one: a server of iperf3 has one client at a time.
const shortPort, longPort = 9000, 9001

// TestServices lets Chromium look at a network in which agents carry transfers and a
// device moves.
func TestServices(t *testing.T) {
	begin(t, "npm", "chromium", "iperf3")
	o := lab.MobilityOptions{Levels: 2}
	l := lab.New(t, servicesTopology(o))
	d, binary := deployServices(t, l, o), selfbuild.Binary(t)
	device := moveDevice(t, d, l, binary)
	startTransfers(t, d, l)
	startNames(t, d, l, binary)
	// Asked by the visit, the device goes back.
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := device.Move(r.Context(), "eth0"); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(back.Close)
	visit(t, "services", forward(t, api(l), nil), tokenOf(t, d), "SLUICE_MOVE="+back.URL, "SLUICE_CLIENT="+l.Host("client").Addr().String(), "SLUICE_WEB="+l.Host("web").Addr().String())
}

// servicesTopology is a tree in which a device moves, and two sites with agents.
func servicesTopology(o lab.MobilityOptions) lab.Topology {
	top := lab.Mobility("board", o)
	wide := lab.Both("s1", "s2", delayline.Params{Rate: 50e6, Delay: 10 * time.Millisecond})
	top.Switches = append(top.Switches, lab.Switch{Name: "s1"}, lab.Switch{Name: "s2"})
	top.Links = append(top.Links, wide, lab.Both("root", "s1", delayline.Params{}))
	for _, h := range []struct{ name, at string }{{"client", "s1"}, {"x", "s1"}, {"web", "s2"}, {"y", "s2"}} {
		top.Hosts = append(top.Hosts, lab.Host{Name: h.name, Agent: len(h.name) == 1})
		top.Links = append(top.Links, lab.Both(h.name, h.at, delayline.Params{}))
	}
	return top
}

// deployServices starts a controller with SOS and handover, and the agents x and y.
func deployServices(t *testing.T, l *lab.Lab, o lab.MobilityOptions) *testbed.Deployment {
	t.Helper()
	var names strings.Builder
	names.WriteString("  switches:\n")
	for _, s := range l.Topology().Switches {
		fmt.Fprintf(&names, "    %016x: {name: %s}\n", l.Switch(s.Name).DPID(), s.Name)
	}
	m := o.Domain()
	services := fmt.Sprintf(`handover:
  enabled: true
  borders:
    - {port: %016x/%d}
  pools:
    devices: {prefix: %v, gateway: %v, first: %v}
`, l.Switch(m.Root).DPID(), lab.UplinkPort, m.Prefix, m.GatewayAddr, m.GatewayAddr.Next().Next())
	d, err := testbed.Deploy(context.WithoutCancel(t.Context()), testbed.Options{
		Lab: l, Binary: selfbuild.Binary(t), LogDir: t.TempDir(), Network: names.String(), Services: services,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// moveDevice attaches a device by its first interface and moves it to its second.
func moveDevice(t *testing.T, d *testbed.Deployment, l *lab.Lab, binary string) *testbed.Mobile {
	t.Helper()
	if err := d.PutClass(t.Context(), "moving", handover.ClassSpec{Policy: "saving"}); err != nil {
		t.Fatal(err)
	}
	// The device's program has the address of the API in its environment alone.
	program := filepath.Join(t.TempDir(), "sluice")
	script := fmt.Sprintf("#!/bin/sh\nSLUICE_ORDERS_SERVER=%s exec %s \"$@\"\n", forward(t, api(l), l.Host("dev1")), binary)
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	device, err := testbed.StartMobile(context.WithoutCancel(t.Context()), testbed.MobileOptions{
		Host: l.Host("dev1"), Binary: program, LogDir: t.TempDir(), Home: d, Device: "phone", Class: "moving", Interfaces: []string{"eth0", "eth1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := device.Move(t.Context(), "eth1"); err != nil {
		t.Fatal(err)
	}
	return device
}

// startNames has one name ask for another again and again, and a storage node keep a chunk for a third, which is away.
func startNames(t *testing.T, d *testbed.Deployment, l *lab.Lab, binary string) {
	t.Helper()
	dir := t.TempDir()
	start := func(host, what string, args ...string) {
		args = append([]string{"mf", what, "--socket", filepath.Join(dir, host+".sock")}, args...)
		d, err := testbed.StartDaemon(context.WithoutCancel(t.Context()), l.Host(host), filepath.Join(dir, host+"-"+what+".log"), binary, args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Stop)
	}
	names := map[string]string{}
	key := func(of string) string { return filepath.Join(dir, of) }
	for _, of := range []string{"receiver", "depot", "absent"} {
		name, err := exec.CommandContext(t.Context(), binary, "mf", "name", "new", key(of)).Output()
		if err != nil {
			t.Fatal(err)
		}
		names[of] = strings.TrimSpace(string(name))
	}
	for host, more := range map[string][]string{"client": {"--storage", names["depot"], "--keep", "5m"}, "web": nil, "x": nil} {
		start(host, "host", append([]string{"--interface", "eth0"}, more...)...)
		err := testbed.Poll(t.Context(), "the host of names", func() error { _, err := os.Stat(filepath.Join(dir, host+".sock")); return err })
		if err != nil {
			t.Fatal(err)
		}
	}
	start("web", "recv", "--name-key", key("receiver"), "--discard", "--follow")
	start("client", "ping", "--count", "100000", "--every", "500ms", names["receiver"])
	files, err := testbed.IssueNode(d, "x", "depot", dir)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("%v:8442", l.ControlAddr("x"))
	start("x", "storage", "--name-key", key("depot"), "--dir", filepath.Join(dir, "chunks"),
		"--control-listen", at, "--control-cert", files.Cert, "--control-key", files.Key, "--control-ca", files.CA)
	if err := d.Do(t.Context(), http.MethodPost, "/api/v1/mobilityfirst/nodes", map[string]string{"name": "depot", "url": "https://" + at}, nil); err != nil {
		t.Fatal(err)
	}
	send := l.Host("client").Command(t.Context(), binary, "mf", "send", "--socket", filepath.Join(dir, "client.sock"), "--delay-tolerant", names["absent"])
	send.Stdin = strings.NewReader("a letter")
	if out, err := send.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// startTransfers carries one transfer by the agents to its end, and begins one that
// goes on until the test ends.
func startTransfers(t *testing.T, d *testbed.Deployment, l *lab.Lab) {
	t.Helper()
	web := l.Host("web")
	for _, port := range []uint16{shortPort, longPort} {
		if _, err := d.Whitelist(t.Context(), web.Addr(), port, sos.Tuning{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running []*exec.Cmd
	t.Cleanup(func() {
		cancel()
		for _, cmd := range running {
			_ = cmd.Wait() // killed
		}
	})
	start := func(at *lab.LiveHost, args ...string) {
		cmd := at.Command(ctx, "iperf3", args...)
		cmd.WaitDelay = time.Second
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	waitReachable(t, l.Host("client"), web.Addr().String())
	waitPunted(t, d, "s1", "s2")
	goDirectly(t, d, l)
	for _, port := range []uint16{shortPort, longPort} {
		start(web, "--server", "--port", fmt.Sprint(port))
		if err := testbed.WaitListening(ctx, web, port); err != nil {
			t.Fatal(err)
		}
	}
	client := func(port, seconds int) []string {
		return []string{"--client", web.Addr().String(), "--port", fmt.Sprint(port), "--bitrate", "16M", "--time", fmt.Sprint(seconds)}
	}
	if out, err := l.Host("client").Command(t.Context(), "iperf3", client(shortPort, 1)...).CombinedOutput(); err != nil {
		t.Fatalf("iperf3: %v\n%s", err, out)
	}
	start(l.Host("client"), client(longPort, 600)...)
	err := testbed.Poll(t.Context(), "the sessions", func() error {
		all, err := d.Sessions(t.Context())
		if err == nil && len(all) < 5 { // one went directly, and iperf3 opens two connections each time
			err = fmt.Errorf("%d of 5 are known: %s", len(all), d.LastWords("controller"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goDirectly has a client connect while no agent takes new sessions.
func goDirectly(t *testing.T, d *testbed.Deployment, l *lab.Lab) {
	t.Helper()
	drain := func(on bool) {
		for _, agent := range []string{"x", "y"} {
			if err := d.Do(t.Context(), http.MethodPost, "/api/v1/sos/agents/"+agent+"/drain", map[string]bool{"on": on}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	drain(true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	connect := fmt.Sprintf("exec 3<>/dev/tcp/%v/%d", l.Host("web").Addr(), shortPort)
	_ = l.Host("client").Command(ctx, "bash", "-c", connect).Run() // refused: nobody listens yet
	drain(false)
}

// waitPunted returns when the switches are known to ask about new connections.
func waitPunted(t *testing.T, d *testbed.Deployment, switches ...string) {
	t.Helper()
	for _, name := range switches {
		err := testbed.Poll(t.Context(), "the rules of SOS", func() error {
			var rules []struct {
				Confirmed bool `json:"confirmed"`
			}
			err := d.Get(t.Context(), "/api/v1/network/rules?owner=sos&switch="+name, &rules)
			if err == nil && (len(rules) < 2 || !rules[0].Confirmed || !rules[1].Confirmed) {
				err = fmt.Errorf("%s has not confirmed two", name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
