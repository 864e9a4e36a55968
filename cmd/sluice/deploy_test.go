package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/check"
	"github.com/sluice-net/sluice/internal/live"
)

// twins are machines of which the page says that they are the same but for names and
// addresses.
var twins = map[string]struct {
	name    string
	replace *strings.Replacer
}{
	"west":  {"east", strings.NewReplacer("west", "east", "192.0.2.10", "198.51.100.10", "10.0.1.10", "10.0.2.10")},
	"edge1": {"edge2", strings.NewReplacer("edge1", "edge2")},
}

// TestDeployAsWritten does what docs/how-to/deploy.md says, by its own commands, as an
// ordinary user with sudo on machines that have nothing of Sluice. The units' commands
// run as the user sluice.
func TestDeployAsWritten(t *testing.T) {
	live.Test(t)
	t.Parallel()
	for _, tool := range []string{"unshare", "nsenter", "setpriv", "apt", "ovs-vswitchd", "nginx", "curl", "ethtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed; make deps installs it", tool)
		}
	}
	m := newMachines(t, "controller", "west", "east", "edge1", "edge2", "client", "server")
	defer func() {
		if t.Failed() {
			m.logs(t)
		}
	}()
	dir := t.TempDir()
	deb := buildPackage(t, dir, "v1.2.3")
	for _, name := range []string{"controller", "west", "east"} {
		must(t, "install", "-D", "-m", "0644", "-t", filepath.Join(m.homes, name, "dist"), deb)
	}
	cable(t, m)
	root, err := check.Root()
	if err != nil {
		t.Fatal(err)
	}
	const page = "docs/how-to/deploy.md"
	blocks, err := check.OnMachines(root, page)
	if err != nil || len(blocks) == 0 {
		t.Fatalf("%d blocks in %s: %v", len(blocks), page, err)
	}
	for _, b := range blocks {
		if strings.Contains(b.Text, "sos sessions") {
			transfer(t, m)
		}
		for _, name := range b.On {
			follow(t, m, name, b, b.Text)
			if twin, ok := twins[name]; ok && !slices.Contains(b.On, twin.name) {
				follow(t, m, twin.name, b, twin.replace.Replace(b.Text))
			}
		}
	}
	checkUnitsRun(t, m)
}

// follow runs a block of the page.
func follow(t *testing.T, m *machines, machine string, b check.Snippet, text string) {
	t.Helper()
	out, err := m.run(t, machine, "admin", text)
	if err != nil {
		t.Fatalf("%s:%d on %s: %v\n--- block\n%s--- output\n%s", b.Path, b.Line, machine, err, text, out)
	}
	if strings.Contains(text, "sos sessions") && (!strings.Contains(out, "10.0.2.80:443") || !strings.Contains(out, "west")) {
		t.Errorf("%s:%d: no session was carried:\n%s", b.Path, b.Line, out)
	}
}

// cable makes the networks that the page takes for granted: one for control, in which the
// controller reaches each machine, and one for data, through the two switches.
func cable(t *testing.T, m *machines) {
	t.Helper()
	for name, address := range map[string]string{"west": "192.0.2.10", "east": "198.51.100.10", "edge1": "192.0.2.21", "edge2": "192.0.2.22"} {
		m.link(t, "controller", name)
		m.must(t, "controller", "ip addr add 192.0.2.1/32 dev "+name+"; ip route add "+address+" dev "+name)
		m.must(t, name, "ip addr add "+address+"/32 dev controller; ip route add 192.0.2.1 dev controller src "+address)
	}
	for name, at := range map[string][2]string{
		"client": {"edge1", "10.0.1.5"}, "west": {"edge1", "10.0.1.10"}, "east": {"edge2", "10.0.2.10"}, "server": {"edge2", "10.0.2.80"},
	} {
		m.link(t, at[0], name)
		m.must(t, name, "ip addr add "+at[1]+"/16 dev "+at[0])
	}
	m.link(t, "edge1", "edge2")
	for edge, ports := range map[string]string{"edge1": "client west edge2", "edge2": "server east edge1"} {
		m.must(t, edge, `
mkdir -p /run/openvswitch /etc/openvswitch /var/log/openvswitch
rm -f /etc/openvswitch/conf.db
ovsdb-tool create /etc/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server /etc/openvswitch/conf.db --remote=punix:/run/openvswitch/db.sock --private-key=db:Open_vSwitch,SSL,private_key \
  --certificate=db:Open_vSwitch,SSL,certificate --ca-cert=db:Open_vSwitch,SSL,ca_cert --pidfile --detach --log-file
ovs-vsctl --no-wait init
ovs-vswitchd --disable-system --pidfile --detach --log-file
ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev
for port in `+ports+`; do ovs-vsctl add-port br0 $port; done`)
	}
	m.must(t, "server", `mkdir /tmp/www; head -c 3000000 /dev/urandom >/tmp/www/data
echo 'pid /tmp/nginx.pid; error_log stderr; events {} http { access_log off; server { listen 443; root /tmp/www; } }' >/tmp/nginx.conf
chmod -R a+rX /tmp/www
setsid nginx -c /tmp/nginx.conf </dev/null >/run/nginx.log 2>&1`)
}

// transfer opens the connection that the page asks for.
func transfer(t *testing.T, m *machines) {
	t.Helper()
	m.must(t, "client", "curl -sS --max-time 60 -o /tmp/data http://10.0.2.80:443/data; test $(stat -c %s /tmp/data) = 3000000")
}

// checkUnitsRun wants the units' processes to be the user's, and their keys to be closed
// to others.
func checkUnitsRun(t *testing.T, m *machines) {
	t.Helper()
	for machine, unit := range map[string]string{"controller": "controller", "west": "agent", "east": "agent"} {
		out := m.must(t, machine, `pid=$(cat /run/sluice-`+unit+`.pid); readlink /proc/$pid/exe; stat -c %U /proc/$pid
stat -c '%U:%G %a' /etc/sluice/pki/`+machine+`.key`)
		if want := "/usr/bin/sluice\nsluice\nroot:sluice 640\n"; out != want {
			t.Errorf("%s runs as %q, want %q", machine, out, want)
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("the units are not verified: systemd-analyze is not installed")
		return
	}
	if out := m.must(t, "controller", "systemd-analyze verify --man=no /lib/systemd/system/sluice-*.service 2>&1"); strings.Contains(out, "sluice-") {
		t.Errorf("systemd-analyze:\n%s", out)
	}
	if _, err := os.Stat("/etc/sluice/pki/west.key"); err == nil {
		t.Error("the test has left its mark on this machine")
	}
}
