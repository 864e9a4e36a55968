package config

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/strictyaml"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
)

// Controller is the configuration of "sluice controller".
type Controller struct {
	DataDir  string   `yaml:"data_dir" pattern:"/.*" form:"an absolute path like /var/lib/sluice" doc:"Folder for state: the embedded store and the generated token. It is made, readable by its owner only."`
	Log      Log      `yaml:"log" doc:"What is logged, and how."`
	Store    Store    `yaml:"store" doc:"Where state lives."`
	API      API      `yaml:"api" doc:"The REST interface."`
	Events   Events   `yaml:"events" doc:"The event stream."`
	OpenFlow OpenFlow `yaml:"openflow" doc:"Where switches connect."`
	Network  Network  `yaml:"network" doc:"How the network is explored and used."`
	OVSDB    OVSDB    `yaml:"ovsdb" doc:"Where the databases of switches that run Open vSwitch are."`
	Agents   Agents   `yaml:"agents" doc:"How the controller speaks to what services have on other machines: agents, gateways and nodes."`

	// Warnings are what should be mended in what was read, as keys with old names.
	Warnings []string

	// Services are the sections of the services, in the order in which they are listed.
	Services []ServiceSection
}

// ServiceSection is what a controller's configuration has for one service.
type ServiceSection struct {
	// Key is its key, and Doc what the reference says of it.
	Key, Doc string
	Section  Section
}

// Section is the configuration of a service: a pointer to a struct, as Checked describes it.
type Section interface {
	// Check reports what is wrong with it beyond single values, and beside the rest of the
	// controller's configuration.
	Check(*Checker, *Controller)
	// Adopt returns the section that is in force once next, of the same type, has been read:
	// a copy with what of next takes effect without a restart. It changes neither.
	Adopt(next Section) Section
}

// Of returns the section of the type S, which the controller must have.
func Of[S Section](c *Controller) S {
	for _, s := range c.Services {
		if section, ok := s.Section.(S); ok {
			return section
		}
	}
	panic(fmt.Sprintf("config: no service has the section %T", *new(S)))
}

// Section returns the section with a key, which the controller must have.
func (c *Controller) Section(key string) Section {
	for _, s := range c.Services {
		if s.Key == key {
			return s.Section
		}
	}
	panic("config: no service has the section " + key)
}

// Agents says how the controller speaks to what services have on other machines.
type Agents struct {
	TLS TLS `yaml:"tls" doc:"The controller's certificate towards agents, gateways and nodes, and the authority of theirs. Without it, only agents on the same machine can be used."`
}

// Log says what is logged.
type Log struct {
	Level  string `yaml:"level" oneof:"debug|info|warn|error" doc:"The least important lines that are written."`
	Format string `yaml:"format" oneof:"text|json" doc:"One line of key=value pairs, or one JSON object a line."`
}

// TLS is a server's certificate and the authority of its clients.
type TLS struct {
	Cert string `yaml:"cert" file:"yes" doc:"Certificate, PEM. Empty: no TLS. \"sluice pki issue\" makes one."`
	Key  string `yaml:"key" file:"yes" doc:"Key of the certificate, PEM."`
	CA   string `yaml:"ca" file:"yes" doc:"Authority that issued the other side's certificates, PEM. The other side must then have one."`

	Roles pki.Mapping `yaml:"roles" oneof:"controller|agent|switch|operator|neighbour|node" doc:"Roles of holders whose certificates name none because they are not of \"sluice pki\", by common name: alice: operator. The name * stands for all others of that authority. Who has no role is refused."`
}

// Enabled says whether there is a certificate.
func (t TLS) Enabled() bool { return t.Cert != "" }

// Files are what the certificate and its authority are read from.
func (t TLS) Files() pki.Files {
	return pki.Files{Cert: t.Cert, Key: t.Key, CA: t.CA, Roles: t.Roles}
}

// NamedTLS is the TLS settings of one key of a configuration.
type NamedTLS struct {
	// Key is where they stand, like api.tls.
	Key string
	TLS
}

// Certificates lists the settings that name a certificate.
func (c *Controller) Certificates() []NamedTLS {
	var all []NamedTLS
	var visit func(s setting)
	visit = func(s setting) {
		if t, ok := s.value.Interface().(TLS); ok && t.Enabled() {
			all = append(all, NamedTLS{s.key, t})
		}
		if s.value.Kind() != reflect.Map || !isSection(s.value.Type().Elem()) {
			return
		}
		byName := map[string]reflect.Value{}
		for key, value := range s.value.Seq2() {
			byName[fmt.Sprint(key)] = value
		}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			walk(byName[name], strictyaml.Join(s.key, name), visit)
		}
	}
	walk(reflect.ValueOf(c).Elem(), "", visit)
	return all
}

// Store says where state lives.
type Store struct {
	Kind      string   `yaml:"kind" oneof:"embedded|etcd|memory" doc:"embedded: a database inside the controller, in the folder store below data_dir. etcd: a cluster that somebody runs, see endpoints. memory: nothing survives a restart."`
	Endpoints []string `yaml:"endpoints" pattern:"https?://[^/]+" form:"a URL like https://10.0.0.1:2379" doc:"Client addresses of the cluster's members; for kind etcd only."`
	Prefix    string   `yaml:"prefix" doc:"What stands before all keys in the cluster, so that several installations can share it."`
	Username  string   `yaml:"username" doc:"User of the cluster, if it asks for one."`
	Password  Secret   `yaml:"password" doc:"The user's password. Better given in the environment than in the file."`
	TLS       TLS      `yaml:"tls" doc:"Certificates for https endpoints; ca alone is enough if the cluster asks for no client certificate."`

	MinFree   Size      `yaml:"min_free" min:"8MiB" max:"1024GiB" doc:"How much of the file system of data_dir has to be free for the embedded store to accept writes. With less it goes on with what needs none."`
	Snapshots Snapshots `yaml:"snapshots" doc:"Copies of the embedded store in the folder snapshots below data_dir, for \"sluice store restore\"."`
}

// Snapshots says which copies of the embedded store are kept.
type Snapshots struct {
	Keep    int           `yaml:"keep" min:"0" max:"1000" doc:"How many are kept, the latest ones. 0: none are taken."`
	Every   time.Duration `yaml:"every" min:"1s" max:"720h" doc:"How long after one the next is taken, if something has changed."`
	MaxSize Size          `yaml:"max_size" min:"1MiB" max:"4GiB" doc:"A store that holds more is not copied."`
}

// API says how the REST interface is served.
type API struct {
	Listen    Address `yaml:"listen" doc:"Where it listens. Beyond loopback it needs tls."`
	TLS       TLS     `yaml:"tls" doc:"Serves https. With ca, a client certificate of that authority is accepted instead of a token."`
	TokenFile string  `yaml:"token_file" doc:"File with the bearer token. Empty: the file token below data_dir. One that does not exist is made, with a random token, readable by its owner only."`
	OpenReads bool    `yaml:"open_reads" doc:"Lets requests that only read pass without a token. On loopback only."`
	MaxBody   Size    `yaml:"max_body" min:"1KiB" max:"64MiB" doc:"Largest body of a request."`
}

// Events says how events are kept.
type Events struct {
	Remember int `yaml:"remember" min:"16" max:"1000000" doc:"How many of the latest events are kept in memory for consumers that fall behind or come back."`
}

// OpenFlow says where switches connect.
type OpenFlow struct {
	Listen         []Address     `yaml:"listen" doc:"Where switches connect. Beyond loopback it needs tls, or plaintext: true."`
	TLS            TLS           `yaml:"tls" doc:"Switches connect with TLS and, with ca, with certificates of their own."`
	Plaintext      bool          `yaml:"plaintext" doc:"Accepts switches without TLS beyond loopback: for a management network that only switches and controllers are on."`
	BindCerts      bool          `yaml:"bind_certificates" doc:"Lets a switch use only the datapath identifier that its certificate names, by the identifier itself or by network.switches.<dpid>.name."`
	EchoInterval   time.Duration `yaml:"echo_interval" min:"100ms" max:"1m" doc:"How long a switch may be silent before it is asked for a sign of life."`
	EchoTimeout    time.Duration `yaml:"echo_timeout" min:"200ms" max:"5m" doc:"How long a switch may be silent before it is given up. More than echo_interval."`
	RequestTimeout time.Duration `yaml:"request_timeout" min:"500ms" max:"2m" doc:"How long a switch may take to answer a request."`
	MaxSwitches    int           `yaml:"max_switches" min:"1" max:"10000" doc:"How many switches may be connected."`
	Memory         Size          `yaml:"memory" min:"1MiB" max:"64GiB" doc:"How much memory all switches together may take, beyond 256 KiB for each: for their replies, about 500 bytes for each of a switch's rules, for messages that they have not read yet, and for packets held for services. Where it is used up, the session of the switch is ended that takes most."`
	MaxPorts       int           `yaml:"max_ports" min:"1" max:"65535" doc:"How many ports a switch may have. One that claims more is refused."`
}

// Network says how the network is explored and used.
type Network struct {
	Discovery     Discovery                        `yaml:"discovery" doc:"How links between switches are found."`
	Hosts         Hosts                            `yaml:"hosts" doc:"How end hosts are learned."`
	Forwarding    Forwarding                       `yaml:"forwarding" doc:"Forwarding of what no service handles."`
	Measure       string                           `yaml:"measure" oneof:"poll|sflow|both" doc:"Where the counters of ports come from, that rates and losses are made of. poll: switches are asked. sflow: switches report by themselves. both: switches are asked, and their reports stand in where they do not answer."`
	StatsInterval time.Duration                    `yaml:"stats_interval" min:"1s" max:"1m" doc:"How often the counters of ports are read, or reported."`
	SFlow         SFlow                            `yaml:"sflow" doc:"Reports of switches, see measure."`
	Switches      map[openflow.DatapathID]SwitchIs `yaml:"switches" doc:"What is known about single switches, by datapath id."`
}

// SFlow says how switches report by themselves what they count.
type SFlow struct {
	Listen    Address `yaml:"listen" doc:"Where sFlow is received, by UDP; needed unless measure is poll. What does not come from the address of the switch's own OpenFlow connection is not believed."`
	Collector Address `yaml:"collector" doc:"The same place as switches reach it. If set, Open vSwitch is told to report there, through its database (see ovsdb). Empty: whoever runs the switches configures their sFlow."`
	Sampling  int     `yaml:"sampling" min:"1" max:"1000000000" doc:"Of how many packets Open vSwitch samples one."`
}

// Discovery says how links are found.
type Discovery struct {
	Interval time.Duration `yaml:"interval" min:"100ms" max:"5m" doc:"How often each port sends a probe."`
	Timeout  time.Duration `yaml:"timeout" min:"300ms" max:"15m" doc:"How long after its last probe a link is dead. At least twice the interval."`
	Window   int           `yaml:"latency_window" min:"1" max:"1000" doc:"Over how many probes the latency of a link is smoothed."`
}

// Hosts says how end hosts are learned.
type Hosts struct {
	IgnoreVLAN bool                      `yaml:"ignore_vlan" doc:"Takes a MAC address for the same host whatever VLAN it is seen on: for networks that translate VLANs on the way."`
	Subnets    []netip.Prefix            `yaml:"subnets" doc:"Subnets that stand in this network: their addresses are learned from any IP packet, not from ARP and neighbour discovery alone."`
	Pinned     map[netip.Addr]PinnedHost `yaml:"pinned" doc:"Hosts whose place never changes, like servers and gateways, by address: what is said of them elsewhere is not believed."`
	Confirm    time.Duration             `yaml:"confirm" min:"50ms" max:"10s" doc:"How long a host may take to answer where it was when it, or its address, is said to be elsewhere. If it does not, that is believed."`
	Access     int                       `yaml:"per_access_port" min:"1" max:"4096" doc:"How many hosts may be behind a port of role access, see network.switches."`
	HoldLimit  int                       `yaml:"hold_limit" min:"16" max:"1000000" doc:"How many packets of one switch may wait for services."`
}

// PinnedHost is where an address is, and whose it is.
type PinnedHost struct {
	MAC    openflow.MAC        `yaml:"mac" doc:"The host's MAC address."`
	Switch openflow.DatapathID `yaml:"switch" doc:"The switch where it is."`
	Port   int                 `yaml:"port" min:"1" max:"65279" doc:"The port behind which it is."`
}

// Forwarding says how packets go that no service handles.
type Forwarding struct {
	Enabled     bool          `yaml:"enabled" doc:"Off: packets that no service handles are dropped."`
	Metric      string        `yaml:"metric" oneof:"hops|latency|utilisation|capacity" doc:"What its paths minimise (for capacity: maximise)."`
	IdleTimeout time.Duration `yaml:"idle_timeout" min:"1s" max:"18h" doc:"How long a rule stays without traffic."`
	MaxRules    int           `yaml:"max_rules" min:"100" max:"10000000" doc:"How many rules default forwarding may keep on one switch."`

	Mode     string                               `yaml:"mode" oneof:"reactive|proactive" doc:"reactive: a pair of hosts that talk has rules along one path, when it does. proactive: each host has rules on every switch, over all paths that are equally good, before anybody talks to it."`
	Unequal  bool                                 `yaml:"unequal" doc:"In proactive mode with metric capacity, takes longer paths, too, as long as each hop comes nearer."`
	Prefixes map[netip.Prefix]openflow.DatapathID `yaml:"prefixes" doc:"In proactive mode, the switches behind which all addresses of a prefix are, by prefix: other switches have one rule for them, instead of one for each host."`
}

// check refuses what would change the rules by destination without end, or has no meaning.
func (f *Forwarding) check(k *Checker) {
	proactive := f.Mode == "proactive"
	k.Require(!proactive || f.Metric == "hops" || f.Metric == "capacity", "network.forwarding.metric", f.Metric+" changes all the time", "hops or capacity, since network.forwarding.mode is proactive")
	k.Require(!proactive || f.Enabled, "network.forwarding.mode", "without forwarding", "remove it, or set network.forwarding.enabled to true")
	k.Require(proactive || !f.Unequal, "network.forwarding.unequal", "without meaning", "remove it, or set network.forwarding.mode to proactive")
	k.Require(!proactive || !f.Unequal || f.Metric == "capacity", "network.forwarding.unequal", "without effect", "network.forwarding.metric: capacity, since by hops all that comes nearer comes nearer by one")
	k.Require(proactive || len(f.Prefixes) == 0, "network.forwarding.prefixes", "without meaning", "remove it, or set network.forwarding.mode to proactive")
	for p, sw := range f.Prefixes {
		at := "network.forwarding.prefixes." + p.String()
		k.Require(p == p.Masked(), at, "bits beyond the prefix", "like "+p.Masked().String())
		k.Require(sw != 0, at, "no switch", "its datapath identifier")
	}
}

// SwitchIs is what is known about a switch beforehand.
type SwitchIs struct {
	Name     string             `yaml:"name" pattern:"[A-Za-z0-9][A-Za-z0-9._-]{0,62}" form:"a name of letters, digits, dots, dashes" doc:"Name for people."`
	Rewrite  string             `yaml:"rewrite" oneof:"auto|full|l2" doc:"Which addresses it can rewrite: as it says itself, all, or MAC addresses only."`
	Capacity map[int]units.Rate `yaml:"capacity" min:"1kbit" max:"1Tbit" doc:"Capacity of its links, by port: for links slower than their ports, and ports that do not tell their speed."`
	Roles    map[int]string     `yaml:"roles" oneof:"access|uplink|trunk" doc:"What its ports are for, by port. access: a few end hosts, see network.hosts.per_access_port; a link there is told of. uplink: networks beyond this one, with many hosts and servers of DHCP. trunk: many hosts of this network, or a link."`
	Tables   Tables             `yaml:"tables" doc:"Where the stages of the pipeline stand, see docs/topics/pipeline.md: as the switch says itself, all in one table, or in tables of these numbers."`
	Bundles  string             `yaml:"bundles" oneof:"auto|off" doc:"Whether atomic changes use OpenFlow bundles: if it has them, or never."`
}

func (s *SwitchIs) defaults() { s.Rewrite, s.Bundles = "auto", "auto" }

// DefaultController is the configuration of a controller with these services that is told
// nothing.
func DefaultController(services []ServiceSection) *Controller {
	return &Controller{
		Services: services,
		DataDir:  DefaultDataDir(),
		Log:      Log{Level: "info", Format: "text"},
		Store: Store{
			Kind: "embedded", Prefix: "sluice", MinFree: 16 << 20,
			Snapshots: Snapshots{Keep: 5, Every: time.Hour, MaxSize: 256 << 20},
		},
		API:    API{Listen: Loopback(8080), MaxBody: 1 << 20},
		Events: Events{Remember: 4096},
		OpenFlow: OpenFlow{
			Listen: []Address{Loopback(6653)}, EchoInterval: 5 * time.Second, EchoTimeout: 15 * time.Second,
			RequestTimeout: 10 * time.Second, MaxSwitches: 4096, MaxPorts: 4000, Memory: 64 << 20,
		},
		Network: Network{
			Discovery:     Discovery{Interval: time.Second, Timeout: 3500 * time.Millisecond, Window: 8},
			Hosts:         Hosts{HoldLimit: 4096, Confirm: 300 * time.Millisecond, Access: 16},
			Forwarding:    Forwarding{Enabled: true, IdleTimeout: time.Minute, MaxRules: 100000, Metric: "hops", Mode: "reactive"},
			Measure:       "poll",
			StatsInterval: 5 * time.Second,
			SFlow:         SFlow{Sampling: 1000},
		},
	}
}

// Check implements Checked.
func (c *Controller) Check(k *Checker) {
	k.Files(c)
	k.TLS("store.tls", c.Store.TLS, false)
	k.TLS("api.tls", c.API.TLS, false)
	k.TLS("openflow.tls", c.OpenFlow.TLS, false)
	k.TLS("agents.tls", c.Agents.TLS, true)
	c.checkStore(k)
	c.checkAPI(k)
	c.checkOpenFlow(k)
	c.Network.checkMeasure(k, c.OVSDB)
	c.OVSDB.check(k)
	c.Network.Hosts.check(k)
	c.Network.Forwarding.check(k)
	c.Network.checkRoles(k)
	d := c.Network.Discovery
	k.Require(d.Timeout >= 2*d.Interval, "network.discovery.timeout", "too short for the interval", "at least twice network.discovery.interval, which is "+d.Interval.String())
	for _, s := range c.Services {
		s.Section.Check(k, c)
	}
	k.Require(c.DataDir != "", "data_dir", "empty", "write an absolute path like /var/lib/sluice")
}

func (h *Hosts) check(k *Checker) {
	for addr, p := range h.Pinned {
		k.Require(!p.MAC.IsZero() && p.Switch != 0 && p.Port != 0, "network.hosts.pinned."+addr.String(), "incomplete", "say mac, switch and port")
	}
}

func (n *Network) checkRoles(k *Checker) {
	for d, s := range n.Switches {
		for port := range s.Roles {
			k.Require(port >= 1 && port <= int(openflow.PortMax), fmt.Sprintf("network.switches.%v.roles", d), fmt.Sprintf("no port %d", port), fmt.Sprintf("ports from 1 to %d", uint32(openflow.PortMax)))
		}
	}
}

func (n *Network) checkMeasure(k *Checker, databases OVSDB) {
	polls := n.Measure == "poll"
	k.Require(!n.SFlow.Collector.IsValid() || databases.Address != "" || len(databases.Switches) > 0,
		"network.sflow.collector", "without the databases of switches, which are told", "set ovsdb.address or ovsdb.switches, or leave the collector out")
	listens := n.SFlow.Listen.IsValid()
	k.Require(polls || listens, "network.sflow.listen", "missing", "network.measure is "+n.Measure+": write "+AddressForm)
	k.Require(!polls || !listens, "network.sflow.listen", "contradicts network.measure, which is poll", "remove it, or set network.measure to sflow or both")
	k.Require(!polls || listens || !n.SFlow.Collector.IsValid(), "network.sflow.collector", "contradicts network.measure, which is poll", "remove it, or set network.measure to sflow or both")
}

func (c *Controller) checkStore(k *Checker) {
	s := c.Store
	k.Require(s.Kind != "etcd" || len(s.Endpoints) > 0, "store.endpoints", "missing", "kind etcd needs at least one, like [https://10.0.0.1:2379]; without a cluster use kind embedded")
	k.Require(s.Kind == "etcd" || len(s.Endpoints) == 0, "store.endpoints", "contradicts store.kind, which is "+s.Kind, "remove it, or set store.kind to etcd")
	k.Require(len(s.TLS.Roles) == 0, "store.tls.roles", "without meaning", "remove it: members of a cluster need no role")
	k.Require((s.Username == "") == (s.Password == ""), "store.username", "incomplete", "store.username and store.password belong together: set both or none")
}

func (c *Controller) checkAPI(k *Checker) {
	a := c.API
	if !a.Listen.IsValid() {
		k.Fail("api.listen", "empty", "write "+AddressForm)
		return
	}
	k.Require(a.Listen.Loopback() || a.TLS.Enabled(), "api.listen", "reachable from other machines without TLS", "set api.tls.cert and api.tls.key, or listen on loopback, like 127.0.0.1:8080")
	k.Require(a.Listen.Loopback() || !a.OpenReads, "api.open_reads", "open to other machines, since api.listen is not loopback", "remove it, or listen on loopback, like 127.0.0.1:8080")
}

func (c *Controller) checkOpenFlow(k *Checker) {
	o := c.OpenFlow
	k.Require(len(o.Listen) > 0, "openflow.listen", "empty", "write at least one address, like [127.0.0.1:6653]")
	k.Distinct("openflow.listen", append([]Address{c.API.Listen}, o.Listen...))
	beyond := slices.ContainsFunc(o.Listen, func(a Address) bool { return !a.Loopback() })
	k.Require(!beyond || o.TLS.Enabled() || o.Plaintext, "openflow.listen", "reachable from other machines without TLS",
		"set openflow.tls.cert, key and ca, or openflow.plaintext: true on a network of switches and controllers only")
	k.Require(!o.TLS.Enabled() || !o.Plaintext, "openflow.plaintext", "contradicts openflow.tls", "keep one of the two")
	k.Require(!o.BindCerts || o.TLS.CA != "", "openflow.bind_certificates", "without certificates of the switches", "set openflow.tls.cert, key and ca")
	k.Require(o.EchoTimeout > o.EchoInterval, "openflow.echo_timeout", "not more than the interval", "more than openflow.echo_interval, which is "+o.EchoInterval.String())
}
