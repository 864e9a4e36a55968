package cli

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/config/configtest"
	"github.com/sluice-net/sluice/services/handover/mobile/policy"
)

const someInterface = "interfaces: {wlan0: {}}\n"

var mobileWrongs = []configtest.Wrong{
	{Name: "no interface", Text: "metric: 5", Line: 0, Key: "interfaces", Value: "", Want: "at least one"},
	{Name: "unknown key of an interface", Text: "interfaces:\n  wlan0: {prio: 1}", Line: 2, Key: "interfaces.wlan0.prio", Value: "", Want: "order, cost"},
	{Name: "virtual interface among them", Text: "vni: {name: x0}\ninterfaces:\n  x0: {}", Line: 3, Key: "interfaces.x0", Value: "", Want: "another name"},
	{Name: "long name", Text: "interfaces:\n  abcdefghijklmnop: {}", Line: 2, Key: "interfaces.abcdefghijklmnop", Value: "", Want: "at most 15"},
	{Name: "loopback", Text: "interfaces: {lo: {}}", Line: 1, Key: "interfaces.lo", Value: "", Want: "like wlan0"},
	{Name: "no MAC address", Text: someInterface + "vni: {mac: 02:00:00:00:00}", Line: 2, Key: "vni.mac", Value: "02:00:00:00:00", Want: "MAC address"},
	{Name: "unknown criterion", Text: someInterface + "policy: {criteria: [order, colour]}", Line: 2, Key: "policy.criteria[1]", Value: "colour", Want: "one of order"},
	{Name: "share above one", Text: someInterface + "policy: {max_loss: 50}", Line: 2, Key: "policy.max_loss", Value: "50", Want: "from 0 to 1"},
	{Name: "positive signal", Text: someInterface + "policy: {min_signal: 80}", Line: 2, Key: "policy.min_signal", Value: "80", Want: "from -120 to 0"},
	{Name: "probes too often", Text: someInterface + "probe: {interval: 10ms}", Line: 2, Key: "probe.interval", Value: "10ms", Want: "at least 20ms"},
	{Name: "a datapath of one's own", Text: someInterface + "datapath: {kind: dpdk}", Line: 2, Key: "datapath.kind", Value: "", Want: "known here"},
	{Name: "relative path", Text: someInterface + "socket: mobile.sock", Line: 2, Key: "socket", Value: "mobile.sock", Want: "absolute path"},
	{Name: "key that is not there", Text: someInterface + "key_file: /nowhere/key", Line: 2, Key: "key_file", Value: "/nowhere/key", Want: "file that is there"},
	{Name: "orders without a key", Text: someInterface + "orders: {server: 'https://c:8443'}", Line: 1, Key: "key_file", Value: "", Want: "by its key"},
	{Name: "authority without orders", Text: someInterface + "orders: {ca: FILE}", Line: 2, Key: "orders.server", Value: "", Want: "orders.ca"},
	{Name: "orders without TLS", Text: someInterface + "key_file: FILE\norders: {server: 'http://192.0.2.1:8080'}", Line: 3, Key: "orders.server", Value: "http://192.0.2.1:8080", Want: "https"},
	{Name: "the rest is empty", Text: someInterface + "state_dir: ''", Line: 2, Key: "state_dir", Value: "", Want: "absolute path"},
}

func TestMobileRefuses(t *testing.T) {
	configtest.Refuses(t, mobileWrongs, func() config.Checked { return DefaultMobile() })
}

func TestMobile(t *testing.T) {
	m := DefaultMobile()
	text := "key_file: " + configtest.File(t) + `
interfaces:
  wwan0: {order: 2, cost: 10}
  wlan0: {order: 1}
  eth0: {order: 1, cost: 3}
orders: {server: 'http://127.0.0.1:8080'}
policy: {criteria: [cost, signal]}
`
	if err := config.Parse(config.Sources{File: "f.yaml", Set: []string{"policy.dwell=7s"}, Env: []string{"SLUICE_VNI_NAME=m0"}}, []byte(text), m); err != nil {
		t.Fatal(err)
	}
	if got := m.Names(); !slices.Equal(got, []string{"eth0", "wlan0", "wwan0"}) || m.Interfaces["wwan0"].Cost != 10 {
		t.Errorf("interfaces %v, %+v", got, m.Interfaces)
	}
	if m.Policy.Dwell != 7*time.Second || m.VNI.Name != "m0" || !slices.Equal(m.Policy.Criteria, []policy.Criterion{policy.Cost, policy.Signal}) {
		t.Errorf("%+v", m)
	}
	again := DefaultMobile()
	if err := config.Parse(config.Sources{File: "again"}, []byte(config.Example(m)), again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m, again); d != "" {
		t.Errorf("reads back differently:\n%s", d)
	}
}
