package datapath_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	cebpf "github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/handover/mobile/datapath/ebpf"
	"github.com/sluice-net/sluice/handover/mobile/datapath/ovs"
	"github.com/sluice-net/sluice/openflow"
)

var (
	vniMAC  = openflow.MAC{0x02, 0x11, 0, 0, 0, 0x01}
	wifiMAC = openflow.MAC{0x02, 0x22, 0, 0, 0, 0x02}
	lteMAC  = openflow.MAC{0x02, 0x33, 0, 0, 0, 0x03}
	apMAC   = openflow.MAC{0x02, 0x44, 0, 0, 0, 0x04} // the networks' side of both
	peerMAC = openflow.MAC{0x02, 0x55, 0, 0, 0, 0x05} // somebody behind it
)

const (
	wifi = "wifi"
	lte  = "lte"
	vni  = "vni0"
)

// kind is one implementation to test.
type kind struct {
	name string
	tso  bool
	// prepare readies a namespace, and returns what open wants to know.
	prepare func(testing.TB, *space, bool) (arg string)
	open    func(context.Context, datapath.Config, string) (datapath.Datapath, error)
}

func kinds() []kind {
	return []kind{
		{"ebpf", false, prepareEBPF, openEBPF},
		{"ovs", false, startOVS, openOVS},
	}
}

func prepareEBPF(t testing.TB, _ *space, _ bool) string {
	err := ebpf.Probe()
	var verifier *cebpf.VerifierError
	switch {
	case errors.As(err, &verifier): // a kernel that is too old would say so too, but then we want to know
		t.Fatalf("%+v", verifier)
	case errors.Is(err, datapath.ErrUnsupported):
		t.Skip(err)
	}
	return ""
}

func openEBPF(ctx context.Context, c datapath.Config, _ string) (datapath.Datapath, error) {
	return ebpf.Open(ctx, c)
}

func openOVS(ctx context.Context, c datapath.Config, dir string) (datapath.Datapath, error) {
	return ovs.Open(ctx, c, ovs.Options{RunDir: dir, DatapathType: "netdev"})
}

// startOVS starts an Open vSwitch in the namespace and returns where its
// sockets are.
func startOVS(t testing.TB, s *space, tso bool) string {
	t.Helper()
	for _, tool := range []string{"ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	dir, err := os.MkdirTemp("", "sluice-ovs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	database, socket := filepath.Join(dir, "conf.db"), "unix:"+filepath.Join(dir, "db.sock")
	s.run(t, "ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema")
	daemon := func(name string, args ...string) {
		cmd := exec.Command(name, append(args, "-vconsole:off", "-vsyslog:off")...)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+dir, "OVS_LOGDIR="+dir, "OVS_DBDIR="+dir)
		s.start(t, cmd)
	}
	daemon("ovsdb-server", database, "--remote=p"+socket, "--unixctl="+filepath.Join(dir, "db.ctl"))
	eventually(t, "ovsdb-server listens", func() bool { _, err := os.Stat(filepath.Join(dir, "db.sock")); return err == nil })
	vsctl := func(args ...string) {
		s.run(t, "ovs-vsctl", append([]string{"--timeout=20", "--db=" + socket}, args...)...)
	}
	vsctl("--no-wait", "init")
	vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1",
		fmt.Sprintf("other_config:userspace-tso-enable=%v", tso))
	daemon("ovs-vswitchd", socket, "--log-file="+filepath.Join(dir, "vswitchd.log"), "--pidfile="+filepath.Join(dir, "vswitchd.pid"))
	eventually(t, "ovs-vswitchd runs", func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "ovs-vswitchd.*.ctl"))
		return len(found) > 0
	})
	return dir
}

// device is a namespace with two interfaces, and their other ends in another.
type device struct {
	*space
	world *space
	kind  kind
	arg   string
}

func newDevice(t testing.TB, k kind) *device {
	t.Helper()
	d := &device{space: newSpace(t), world: newSpace(t), kind: k}
	pair(t, d.space, wifi, wifiMAC, d.world, "ap-"+wifi, apMAC)
	pair(t, d.space, lte, lteMAC, d.world, "ap-"+lte, apMAC)
	d.arg = k.prepare(t, d.space, k.tso)
	return d
}

func (d *device) config() datapath.Config {
	return datapath.Config{
		VNI: vni, VNIMAC: vniMAC,
		Interfaces: []datapath.Interface{{Name: wifi, MAC: wifiMAC}, {Name: lte, MAC: lteMAC}},
	}
}

// within is a datapath whose methods run in the device's namespace.
type within struct {
	t     testing.TB
	space *space
	inner datapath.Datapath
}

// opened opens the datapath and closes it with the test.
func (d *device) opened(t testing.TB, c datapath.Config) *within {
	t.Helper()
	w := &within{t: t, space: d.space}
	d.must(t, func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		w.inner, err = d.kind.open(ctx, c, d.arg)
		return err
	})
	t.Cleanup(w.close)
	d.must(t, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/"+vni+"/disable_ipv6", []byte("1"), 0) })
	return w
}

func (w *within) call(f func(context.Context) error) error {
	return w.space.do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return f(ctx)
	})
}

func (w *within) use(send string, receive ...string) {
	w.t.Helper()
	if err := w.call(func(ctx context.Context) error { return w.inner.Use(ctx, send, receive) }); err != nil {
		w.t.Fatal(err)
	}
}

// move is the way to another interface that loses nothing.
func (w *within) move(from, to string) {
	w.t.Helper()
	if w.inner.Merges() {
		w.use(to, from, to)
	}
	w.use(to, to)
}

func (w *within) stats() (s datapath.Stats) {
	w.t.Helper()
	err := w.space.do(func() (err error) {
		s, err = w.inner.Stats()
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *within) close() {
	w.t.Helper()
	if err := w.space.do(w.inner.Close); err != nil {
		w.t.Errorf("closing: %v", err)
	}
}

// forEach runs a test for every implementation.
func forEach(t *testing.T, f func(*testing.T, kind)) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) { f(t, k) })
	}
}
