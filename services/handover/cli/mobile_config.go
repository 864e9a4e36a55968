package cli

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/services/handover/mobile/policy"
)

// Mobile is the configuration of "sluice mobile".
type Mobile struct {
	Device      string                     `yaml:"device" pattern:"[A-Za-z0-9][A-Za-z0-9._-]{0,62}" form:"a name of letters, digits, dots, dashes" doc:"Name under which the network has registered the device. Empty: the machine's host name."`
	KeyFile     string                     `yaml:"key_file" file:"yes" doc:"File with the device's key, 64 hex digits, by which it signs its requests to move. Empty: they are not signed, and the network must know the ports where the device may attach."`
	StateDir    string                     `yaml:"state_dir" pattern:"/.*" form:"an absolute path like /var/lib/sluice/mobile" doc:"Folder for the lease, and for what has to be put back if the daemon is killed. It is made, readable by its owner only."`
	Socket      string                     `yaml:"socket" pattern:"/.*" form:"an absolute path like /run/sluice/mobile.sock" doc:"Control socket, for \"sluice mobile status\" and \"sluice mobile move\". Only root, and socket_group, can use it."`
	SocketGroup string                     `yaml:"socket_group" pattern:"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}" form:"the name of a group" doc:"Group whose members may use the control socket, too. Empty: nobody."`
	Log         config.Log                 `yaml:"log" doc:"What is logged, and how."`
	VNI         VNI                        `yaml:"vni" doc:"The virtual interface that applications use."`
	Interfaces  map[string]MobileInterface `yaml:"interfaces" doc:"The interfaces that carry its packets, by name. They belong to the daemon: their own addresses and routes are taken off while it runs."`
	Datapath    Datapath                   `yaml:"datapath" doc:"How packets are carried between the virtual interface and the others."`
	Policy      policy.Rules               `yaml:"policy" doc:"When the device moves by itself."`
	Probe       Probe                      `yaml:"probe" doc:"How it is found that a network does not work although the link does: the gateway is asked for, by ICMP echo where the device's packets go, and by ARP."`
	DHCP        MobileDHCP                 `yaml:"dhcp" doc:"How networks are joined."`
	Metric      int                        `yaml:"metric" min:"0" max:"1000000" doc:"Metric of the virtual interface's routes: the lowest metric of all default routes wins."`
	Resolver    string                     `yaml:"resolver" pattern:"/.*" form:"a path like /etc/resolv.conf" doc:"File where the network's name servers are written while the daemon runs. Empty: they are left alone. A file that is a symbolic link belongs to another program and is left alone as well."`
	Orders      Orders                     `yaml:"orders" doc:"The controller that may order the device to move."`
}

// VNI is the virtual interface.
type VNI struct {
	Name string `yaml:"name" pattern:"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}" form:"the name of an interface, like sluice0" doc:"Its name. No other interface may have it."`
	MAC  string `yaml:"mac" pattern:"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}" form:"a MAC address like 02:00:00:00:00:01" doc:"Its MAC address, which is to be registered with the network together with those of the interfaces. Empty: made from the first interface's; \"sluice doctor --role mobile\" prints it."`
	MTU  int    `yaml:"mtu" min:"0" max:"65535" doc:"Its MTU at most. It is the smallest of the interfaces' if that is less, also when that changes later. 0: no other bound."`
}

// MobileInterface is an interface that the daemon may use.
type MobileInterface struct {
	Order int `yaml:"order" min:"0" max:"1000" doc:"Its place in the order of preference: low is better."`
	Cost  int `yaml:"cost" min:"0" max:"1000000" doc:"What its use costs, for the criterion cost, in any unit."`
}

// Datapath holds the settings of the datapath.
type Datapath struct {
	Overlap time.Duration `yaml:"overlap" min:"0s" max:"10s" doc:"How long after a move the old interface is still listened to. At least as long as the network sends there."`
}

// Probe holds the settings for probing gateways.
type Probe struct {
	Interval time.Duration `yaml:"interval" min:"0s" max:"10m" doc:"Longest time from one probe to the next on the interface in use; on the others it is 5s, if that is more. While traffic runs it is at most 60ms, and less when nothing is heard. A longer interval saves energy, and delays the notice of a network that dies while nothing runs by as much. Gateways that answer ARP only are asked each 800ms, if that is more. 0s: none is sent, and a network that does not work is not noticed."`
	Window   int           `yaml:"window" min:"5" max:"1000" doc:"Over how many probes loss is counted."`
}

// MobileDHCP holds the settings of the DHCP client, by which the daemon joins networks.
type MobileDHCP struct {
	HostName   string        `yaml:"host_name" pattern:"[A-Za-z0-9][A-Za-z0-9.-]{0,62}" form:"a host name" doc:"Name that DHCP servers are told. Empty: none."`
	Retransmit time.Duration `yaml:"retransmit" min:"50ms" max:"10s" doc:"How long to wait before a request is sent again the first time; the wait doubles, up to 4s."`
	Timeout    time.Duration `yaml:"timeout" min:"1s" max:"5m" doc:"How long joining a network may take before another interface is tried."`
	Release    bool          `yaml:"release" doc:"Gives the address back when the daemon ends. Otherwise the device has it again after a restart, as long as the lease lasts."`
}

// Orders is the controller that may order the device to move.
type Orders struct {
	Server string `yaml:"server" pattern:"https?://[^/]+" form:"a URL like https://controller:8443" doc:"URL of the controller's API. Empty: nobody orders. The device shows who it is by its key."`
	CA     string `yaml:"ca" file:"yes" doc:"Authority of the controller's certificate, PEM. Empty: the system's authorities."`
}

// DefaultMobile returns a configuration with the default values.
func DefaultMobile() *Mobile {
	return &Mobile{
		StateDir: filepath.Join(config.DefaultDataDir(), "mobile"), Socket: "/run/sluice/mobile.sock",
		Log:        config.Log{Level: "info", Format: "text"},
		VNI:        VNI{Name: "sluice0"},
		Interfaces: map[string]MobileInterface{},
		Datapath:   Datapath{Overlap: 2 * time.Second},
		Policy: policy.Rules{
			Criteria: []policy.Criterion{policy.Order}, MinSignal: -80, MaxLoss: 0.5, SignalMargin: 6, LossMargin: 0.1,
			Dwell: 3 * time.Second, Hold: 10 * time.Second,
		},
		Probe:  Probe{Interval: 80 * time.Millisecond, Window: 50},
		DHCP:   MobileDHCP{Retransmit: 100 * time.Millisecond, Timeout: 15 * time.Second},
		Metric: 50,
	}
}

// Names returns the names of the interfaces in the order of preference.
func (m *Mobile) Names() []string {
	return slices.SortedFunc(maps.Keys(m.Interfaces), func(a, b string) int {
		return cmp.Or(m.Interfaces[a].Order-m.Interfaces[b].Order, strings.Compare(a, b))
	})
}

// Check implements config.Checked.
func (m *Mobile) Check(k *config.Checker) {
	k.Files(m)
	const maxInterfaces = 16
	n := len(m.Interfaces)
	k.Require(n > 0, "interfaces", "none", "name at least one, like \"wlan0: {order: 1}\"")
	k.Require(n <= maxInterfaces, "interfaces", fmt.Sprintf("%d of them", n), fmt.Sprintf("at most %d", maxInterfaces))
	for _, name := range m.Names() {
		virtual := name == m.VNI.Name
		k.Require(!virtual, "interfaces."+name, "the virtual interface", "another name there, or another vni.name")
		k.Require(virtual || len(name) <= 15 && name != "lo", "interfaces."+name, "not an Ethernet interface's name", "a name like wlan0, of at most 15 letters")
	}
	k.Require(m.VNI.Name != "", "vni.name", "empty", "a name like sluice0")
	k.Require(m.StateDir != "", "state_dir", "empty", "an absolute path like /var/lib/sluice/mobile")
	k.Require(m.Probe.Interval == 0 || m.Probe.Interval >= 20*time.Millisecond, "probe.interval", "too often", "at least 20ms, or 0s for none")
	m.checkOrders(k)
}

func (m *Mobile) checkOrders(k *config.Checker) {
	o := m.Orders
	if o.Server == "" {
		k.Require(o.CA == "", "orders.server", "missing", "name the controller's API, or remove orders.ca")
		return
	}
	k.Require(m.KeyFile != "", "key_file", "missing", "the device shows the controller by its key who it is")
	u, err := url.Parse(o.Server)
	if err != nil {
		k.Fail("orders.server", "not a URL", "a URL like https://controller:8443")
		return
	}
	addr, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
	k.Require(u.Scheme != "http" || local, "orders.server", "without TLS", "https, or somebody on the way could give orders")
}

// Logging returns the settings of the log.
func (m *Mobile) Logging() config.Log { return m.Log }
