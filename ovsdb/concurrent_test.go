package ovsdb

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
)

// bareServer is an ovsdb-server without a switch's daemon. It has the bridge br0 with ports p1
// and p2.
type bareServer struct {
	t      *testing.T
	target string
}

// schemaFile is the path of the schema in packages of Open vSwitch.
const schemaFile = "/usr/share/openvswitch/vswitch.ovsschema"

func newBareServer(t *testing.T) *bareServer {
	t.Helper()
	live.Test(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "db")
	d := &bareServer{t: t, target: "unix:" + filepath.Join(dir, "db.sock")}
	if out, err := exec.Command("ovsdb-tool", "create", file, schemaFile).CombinedOutput(); err != nil {
		t.Fatalf("create a database: %v: %s", err, out)
	}
	server := exec.Command("ovsdb-server", file, "--remote=p"+d.target, "--unixctl="+filepath.Join(dir, "ctl"))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // it was killed
	})
	// The test writes what a daemon would write: the bridge's identifier and the ports' numbers.
	d.vsctl("--retry", "--timeout=60", "init", "--", "add-br", "br0", "--", "add-port", "br0", "p1", "--", "add-port", "br0", "p2",
		"--", "set", "Interface", "p1", "ofport=1", "--", "set", "Interface", "p2", "ofport=2", "--", "set", "Bridge", "br0", `datapath_id="0000000000000001"`)
	return d
}

// vsctl runs ovs-vsctl, which does not wait for a daemon.
func (d *bareServer) vsctl(args ...string) string {
	d.t.Helper()
	out, err := exec.Command("ovs-vsctl", append([]string{"--no-wait", "--db=" + d.target}, args...)...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("ovs-vsctl %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// start runs a client of the database until the test ends.
func (d *bareServer) start() *Client {
	d.t.Helper()
	c, err := New(Options{Target: d.target})
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Run(ctx) }) // ends with the context
	d.t.Cleanup(func() { cancel(); wg.Wait() })
	return c
}

// send plans what is wanted of the bridge in a state, and sends it.
func send(ctx context.Context, t *testing.T, c *session, s *State, want Wanted) {
	t.Helper()
	b, ok := s.Bridge(1)
	if !ok {
		t.Fatalf("no bridge: %+v", s)
	}
	ops, err := s.plan(b, "test", want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.commit(ctx, s, ops); err != nil {
		t.Fatal(err)
	}
}

// A change that was planned before somebody else set a port's QoS, or took over one of our rows,
// leaves both as they are. Apply reads the latest state, so the old one is sent by hand here.
func TestOthersMeanwhile(t *testing.T) {
	t.Parallel()
	d := newBareServer(t)
	c := d.start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.WaitBridge(ctx, 1); err != nil {
		t.Fatal(err)
	}
	session, empty, _ := c.current()
	send(ctx, t, session, empty, Wanted{Queues: map[uint32]Root{1: root(1_000_000, 0), 2: root(1_000_000, 0)}})
	var one, two Port
	_, stale, changed := c.current()
	for ; ; _, stale, changed = c.current() { // until the client has read its own change
		b, _ := stale.Bridge(1)
		one, _ = b.Port(1)
		two, _ = b.Port(2)
		if one.QoS != nil && two.QoS != nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the queues are not seen: %+v", b)
		}
	}
	d.vsctl("--id=@q", "create", "QoS", "type=linux-htb", "other-config:max-rate=5000000", "--", "set", "Port", one.Name, "qos=@q")
	d.vsctl("set", "QoS", two.qos, "external_ids:"+OwnerTag+"=them")
	send(ctx, t, session, stale, Wanted{Queues: map[uint32]Root{2: root(2_000_000, 0)}})
	for name, want := range map[string]string{one.Name: "5000000", two.Name: "1000000"} {
		if config := d.vsctl("get", "QoS", d.vsctl("get", "Port", name, "qos"), "other_config"); !strings.Contains(config, want) {
			t.Errorf("port %s has a QoS with %s, want the rate %s", name, config, want)
		}
	}
}
