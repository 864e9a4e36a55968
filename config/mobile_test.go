package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/services/handover/mobile/policy"
)

const someInterface = "interfaces: {wlan0: {}}\n"

var mobileWrongs = []wrong{
	{"no interface", "metric: 5", 0, "interfaces", "", "at least one"},
	{"unknown key of an interface", "interfaces:\n  wlan0: {prio: 1}", 2, "interfaces.wlan0.prio", "", "order, cost"},
	{"virtual interface among them", "vni: {name: x0}\ninterfaces:\n  x0: {}", 3, "interfaces.x0", "", "another name"},
	{"long name", "interfaces:\n  abcdefghijklmnop: {}", 2, "interfaces.abcdefghijklmnop", "", "at most 15"},
	{"loopback", "interfaces: {lo: {}}", 1, "interfaces.lo", "", "like wlan0"},
	{"no MAC address", someInterface + "vni: {mac: 02:00:00:00:00}", 2, "vni.mac", "02:00:00:00:00", "MAC address"},
	{"unknown criterion", someInterface + "policy: {criteria: [order, colour]}", 2, "policy.criteria[1]", "colour", "one of order"},
	{"share above one", someInterface + "policy: {max_loss: 50}", 2, "policy.max_loss", "50", "from 0 to 1"},
	{"positive signal", someInterface + "policy: {min_signal: 80}", 2, "policy.min_signal", "80", "from -120 to 0"},
	{"probes too often", someInterface + "probe: {interval: 10ms}", 2, "probe.interval", "10ms", "at least 20ms"},
	{"a datapath of one's own", someInterface + "datapath: {kind: dpdk}", 2, "datapath.kind", "", "known here"},
	{"relative path", someInterface + "socket: mobile.sock", 2, "socket", "mobile.sock", "absolute path"},
	{"key that is not there", someInterface + "key_file: /nowhere/key", 2, "key_file", "/nowhere/key", "file that is there"},
	{"orders without a key", someInterface + "orders: {server: 'https://c:8443'}", 1, "key_file", "", "by its key"},
	{"authority without orders", someInterface + "orders: {ca: FILE}", 2, "orders.server", "", "orders.ca"},
	{"orders without TLS", someInterface + "key_file: FILE\norders: {server: 'http://192.0.2.1:8080'}", 3, "orders.server", "http://192.0.2.1:8080", "https"},
	{"the rest is empty", someInterface + "state_dir: ''", 2, "state_dir", "", "absolute path"},
}

func TestMobileRefuses(t *testing.T) {
	file := someFile(t)
	for _, w := range mobileWrongs {
		t.Run(w.name, func(t *testing.T) {
			checkWrong(t, w, parse(Sources{File: "f.yaml"}, []byte(strings.ReplaceAll(w.text, "FILE", file)), DefaultMobile()))
		})
	}
}

func TestMobile(t *testing.T) {
	m := DefaultMobile()
	text := "key_file: " + someFile(t) + `
interfaces:
  wwan0: {order: 2, cost: 10}
  wlan0: {order: 1}
  eth0: {order: 1, cost: 3}
orders: {server: 'http://127.0.0.1:8080'}
policy: {criteria: [cost, signal]}
`
	if err := parse(Sources{File: "f.yaml", Set: []string{"policy.dwell=7s"}, Env: []string{"SLUICE_VNI_NAME=m0"}}, []byte(text), m); err != nil {
		t.Fatal(err)
	}
	if got := m.Names(); !slices.Equal(got, []string{"eth0", "wlan0", "wwan0"}) || m.Interfaces["wwan0"].Cost != 10 {
		t.Errorf("interfaces %v, %+v", got, m.Interfaces)
	}
	if m.Policy.Dwell != 7*time.Second || m.VNI.Name != "m0" || !slices.Equal(m.Policy.Criteria, []policy.Criterion{policy.Cost, policy.Signal}) {
		t.Errorf("%+v", m)
	}
	again := DefaultMobile()
	if err := parse(Sources{File: "again"}, []byte(Example(m)), again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m, again); d != "" {
		t.Errorf("reads back differently:\n%s", d)
	}
}
