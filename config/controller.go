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
	DataDir  string   `yaml:"data_dir" pattern:"/.*" form:"an absolute path like /var/lib/sluice" doc:"Folder for state: the embedded store and the generated token. The controller creates it, readable only by its owner."`
	Log      Log      `yaml:"log" doc:"Which lines are logged, and in which format."`
	Store    Store    `yaml:"store" doc:"Where the controller stores its state."`
	API      API      `yaml:"api" doc:"The REST interface."`
	Events   Events   `yaml:"events" doc:"The event stream."`
	OpenFlow OpenFlow `yaml:"openflow" doc:"How switches connect."`
	Network  Network  `yaml:"network" doc:"How the network is discovered, measured and used."`
	OVSDB    OVSDB    `yaml:"ovsdb" doc:"How the controller reaches the databases of switches that run Open vSwitch."`
	Agents   Agents   `yaml:"agents" doc:"How the controller connects to the services' programs on other machines: agents, gateways and nodes."`

	// Warnings lists what should be corrected in the configuration, such as keys with old names.
	Warnings []string

	// Services holds the sections of the services, in the order in which they are listed.
	Services []ServiceSection
}

// ServiceSection is the section of one service in a controller's configuration.
type ServiceSection struct {
	// Key is the section's key, and Doc its description in the reference.
	Key, Doc string
	Section  Section
}

// Section is the configuration of a service: a pointer to a struct, as Checked describes it. Its key
// enabled, if it has one, is a bool.
type Section interface {
	// Check reports problems of the section beyond its single values, and contradictions with the
	// rest of the controller's configuration.
	Check(*Checker, *Controller)
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

// Agents describes how the controller connects to the services' programs on other machines.
type Agents struct {
	TLS TLS `yaml:"tls" doc:"The controller's certificate for connections to agents, gateways and nodes, and the authority that issued their certificates. Without it, only agents on the same machine can be used."`
}

// Log describes which lines are logged, and in which format.
type Log struct {
	Level  string `yaml:"level" reload:"yes" oneof:"debug|info|warn|error" doc:"The lowest level of lines that are written."`
	Format string `yaml:"format" oneof:"text|json" doc:"text: key=value pairs on a line. json: one JSON object on a line."`
}

// TLS is a server's certificate and the authority of its clients.
type TLS struct {
	Cert string `yaml:"cert" file:"yes" doc:"Certificate, PEM. Empty: no TLS. \"sluice pki issue\" makes one."`
	Key  string `yaml:"key" file:"yes" doc:"Key of the certificate, PEM."`
	CA   string `yaml:"ca" file:"yes" doc:"Authority that issued the other side's certificates, PEM. If it is set, the other side must have a certificate."`

	Roles pki.Mapping `yaml:"roles" oneof:"controller|agent|switch|operator|neighbour|node" doc:"Roles of holders whose certificates name no role because \"sluice pki\" did not issue them, by common name, like alice: operator. The name * stands for all other holders of that authority. A holder without a role is refused."`
}

// Enabled reports whether there is a certificate.
func (t TLS) Enabled() bool { return t.Cert != "" }

// Files returns the files from which the certificate and its authority are read.
func (t TLS) Files() pki.Files {
	return pki.Files{Cert: t.Cert, Key: t.Key, CA: t.CA, Roles: t.Roles}
}

// NamedTLS is the TLS settings below one key of a configuration.
type NamedTLS struct {
	// Key is the key of the settings, like api.tls.
	Key string
	TLS
}

// Certificates returns the TLS settings that name a certificate.
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

// Store describes where the controller stores its state.
type Store struct {
	Kind      string   `yaml:"kind" oneof:"embedded|etcd|memory" doc:"embedded: a database inside the controller, in the folder store below data_dir. etcd: an external etcd cluster, see endpoints. memory: nothing survives a restart."`
	Endpoints []string `yaml:"endpoints" pattern:"https?://[^/]+" form:"a URL like https://10.0.0.1:2379" doc:"Client addresses of the cluster's members; for kind etcd only."`
	Prefix    string   `yaml:"prefix" doc:"Prefix of all keys in the cluster, so that several installations can share it."`
	Username  string   `yaml:"username" doc:"User of the cluster, if it requires one."`
	Password  Secret   `yaml:"password" doc:"The user's password. Set it in the environment rather than in the file."`
	TLS       TLS      `yaml:"tls" doc:"Certificates for https endpoints. If the cluster requires no client certificate, ca is enough."`

	MinFree   Size      `yaml:"min_free" min:"8MiB" max:"1024GiB" doc:"Free space of data_dir's file system that the embedded store needs to accept writes. With less, only operations that write nothing work."`
	Snapshots Snapshots `yaml:"snapshots" doc:"Copies of the embedded store in the folder snapshots below data_dir, for \"sluice store restore\"."`
}

// Snapshots describes the copies of the embedded store.
type Snapshots struct {
	Keep    int           `yaml:"keep" min:"0" max:"1000" doc:"Number of copies that are kept, the latest ones. 0: no copies are made."`
	Every   time.Duration `yaml:"every" min:"1s" max:"720h" doc:"Time between two copies. No copy is made if nothing has changed."`
	MaxSize Size          `yaml:"max_size" min:"1MiB" max:"4GiB" doc:"A larger store is not copied."`
}

// API describes how the REST interface is served.
type API struct {
	Listen    Address `yaml:"listen" doc:"Address and port on which the API listens. An address other than loopback needs tls."`
	TLS       TLS     `yaml:"tls" doc:"Serves https. With ca, a client certificate of that authority is accepted instead of a token."`
	TokenFile string  `yaml:"token_file" reload:"yes" doc:"File with the bearer token. Empty: the file token below data_dir. If the file does not exist, the controller creates it with a random token, readable only by its owner."`
	OpenReads bool    `yaml:"open_reads" doc:"Accepts requests that only read without a token. It is allowed only on loopback."`
	MaxBody   Size    `yaml:"max_body" min:"1KiB" max:"64MiB" doc:"Largest body of a request."`
}

// Events describes how events are kept.
type Events struct {
	Remember int `yaml:"remember" min:"16" max:"1000000" doc:"Number of the latest events that are kept in memory for consumers that fall behind or reconnect."`
}

// OpenFlow describes how switches connect.
type OpenFlow struct {
	Listen         []Address     `yaml:"listen" doc:"Addresses and ports on which switches connect. Addresses other than loopback need tls, or plaintext: true."`
	TLS            TLS           `yaml:"tls" doc:"Switches connect with TLS and, with ca, with certificates of their own."`
	Plaintext      bool          `yaml:"plaintext" doc:"Accepts switches without TLS on addresses other than loopback. Use it only on a management network to which only switches and controllers are connected."`
	BindCerts      bool          `yaml:"bind_certificates" doc:"Lets a switch use only the datapath identifier that its certificate names, by the identifier itself or by network.switches.<dpid>.name."`
	EchoInterval   time.Duration `yaml:"echo_interval" min:"100ms" max:"1m" doc:"How long a switch may be silent before the controller sends it an echo request."`
	EchoTimeout    time.Duration `yaml:"echo_timeout" min:"200ms" max:"5m" doc:"How long a switch may be silent before its connection is closed. It must be more than echo_interval."`
	RequestTimeout time.Duration `yaml:"request_timeout" min:"500ms" max:"2m" doc:"How long a switch may take to answer a request."`
	MaxSwitches    int           `yaml:"max_switches" min:"1" max:"10000" doc:"Maximum number of connected switches."`
	Memory         Size          `yaml:"memory" min:"1MiB" max:"64GiB" doc:"Memory that all switches together may use, in addition to 256 KiB for each: for their replies (about 500 bytes for each rule of a switch), for messages that they have not read yet, and for packets held for services. When it is used up, the session of the switch that uses most is closed."`
	MaxPorts       int           `yaml:"max_ports" min:"1" max:"65535" doc:"Maximum number of ports of a switch. A switch that reports more is refused."`
}

// Network describes how the network is discovered, measured and used.
type Network struct {
	Discovery     Discovery                        `yaml:"discovery" doc:"How links between switches are found."`
	Hosts         Hosts                            `yaml:"hosts" doc:"How end hosts are learned."`
	Forwarding    Forwarding                       `yaml:"forwarding" doc:"Forwarding of packets that no service handles."`
	Measure       string                           `yaml:"measure" oneof:"poll|sflow|both" doc:"Source of the port counters from which rates and losses are computed. poll: the controller reads them from the switches. sflow: the switches send them. both: the controller reads them, and uses the switches' reports where a switch does not answer."`
	StatsInterval time.Duration                    `yaml:"stats_interval" min:"1s" max:"1m" doc:"Interval at which the counters of ports are read or reported."`
	Compare       time.Duration                    `yaml:"compare_interval" min:"0s" max:"1h" doc:"Interval at which the rules, groups and meters of each switch are compared with what is declared, and repaired. 0: only when a switch reports that one of its rules was removed."`
	SFlow         SFlow                            `yaml:"sflow" doc:"sFlow reports of switches, see measure."`
	Switches      map[openflow.DatapathID]SwitchIs `yaml:"switches" doc:"Settings of single switches, by datapath identifier."`
}

// SFlow describes the sFlow reports of switches.
type SFlow struct {
	Listen    Address `yaml:"listen" doc:"UDP address and port on which sFlow is received. It is needed unless measure is poll. Reports are ignored unless they come from the address of the switch's own OpenFlow connection."`
	Collector Address `yaml:"collector" doc:"The same address and port as the switches see it. If it is set, the controller configures Open vSwitch to report there through its database (see ovsdb). Empty: sFlow must be configured in the switches."`
	Sampling  int     `yaml:"sampling" min:"1" max:"1000000000" doc:"Sampling rate of Open vSwitch: one of this number of packets is sampled."`
}

// Discovery describes how links are found.
type Discovery struct {
	Interval time.Duration `yaml:"interval" min:"100ms" max:"5m" doc:"Interval at which each port sends a probe."`
	Timeout  time.Duration `yaml:"timeout" min:"300ms" max:"15m" doc:"Time after its last probe at which a link counts as down. It must be at least twice the interval."`
	Window   int           `yaml:"latency_window" min:"1" max:"1000" doc:"Number of probes over which the latency of a link is averaged."`
}

// Hosts describes how end hosts are learned.
type Hosts struct {
	IgnoreVLAN bool                      `yaml:"ignore_vlan" doc:"Treats a MAC address as the same host on every VLAN, for networks that translate VLANs."`
	Subnets    []netip.Prefix            `yaml:"subnets" doc:"Subnets of this network. Their addresses are learned from every IP packet, and not only from ARP and neighbour discovery."`
	Pinned     map[netip.Addr]PinnedHost `yaml:"pinned" reload:"yes" doc:"Hosts whose place never changes, like servers and gateways, by address. Packets that claim another place for them are ignored."`
	Confirm    time.Duration             `yaml:"confirm" min:"50ms" max:"10s" doc:"How long a host may take to answer at its known place when it, or its address, appears at another one. If it does not answer, the new place is accepted."`
	Access     int                       `yaml:"per_access_port" min:"1" max:"4096" doc:"Maximum number of hosts behind a port of the role access, see network.switches."`
	HoldLimit  int                       `yaml:"hold_limit" min:"16" max:"1000000" doc:"Maximum number of packets of one switch that are held for services."`
}

// PinnedHost is a host whose place is fixed.
type PinnedHost struct {
	MAC    openflow.MAC        `yaml:"mac" doc:"The host's MAC address."`
	Switch openflow.DatapathID `yaml:"switch" doc:"The switch where it is."`
	Port   int                 `yaml:"port" min:"1" max:"65279" doc:"The port behind which it is."`
}

// Forwarding describes how packets that no service handles are forwarded.
type Forwarding struct {
	Enabled     bool          `yaml:"enabled" doc:"Whether packets that no service handles are forwarded. If false, they are dropped."`
	Metric      string        `yaml:"metric" oneof:"hops|latency|utilisation|capacity" doc:"Metric that the paths minimise. capacity is maximised."`
	IdleTimeout time.Duration `yaml:"idle_timeout" min:"1s" max:"18h" doc:"Idle timeout of a rule."`
	MaxRules    int           `yaml:"max_rules" min:"100" max:"10000000" doc:"Maximum number of rules of default forwarding on one switch."`

	Mode     string                               `yaml:"mode" oneof:"reactive|proactive" doc:"reactive: two hosts that communicate get rules along one path when they start. proactive: each host has rules on every switch, over all equally good paths, before other hosts send to it."`
	Unequal  bool                                 `yaml:"unequal" doc:"In proactive mode with metric capacity, also uses longer paths on which each hop leads nearer to the destination."`
	Prefixes map[netip.Prefix]openflow.DatapathID `yaml:"prefixes" doc:"In proactive mode, the switch behind which all addresses of a prefix are, by prefix. Other switches then have one rule for the prefix instead of one for each host."`
}

// check refuses settings with which the rules of proactive mode would change all the time, and
// settings without effect.
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

// SwitchIs holds the settings of one switch.
type SwitchIs struct {
	Name     string             `yaml:"name" pattern:"[A-Za-z0-9][A-Za-z0-9._-]{0,62}" form:"a name of letters, digits, dots, dashes" doc:"Name for people."`
	Rewrite  string             `yaml:"rewrite" oneof:"auto|full|l2" doc:"Which addresses the switch can rewrite. auto: as the switch reports. full: all. l2: only MAC addresses."`
	Capacity map[int]units.Rate `yaml:"capacity" min:"1kbit" max:"1Tbit" doc:"Capacity of the switch's links, by port. Set it for links that are slower than their ports, and for ports that do not report their speed."`
	Roles    map[int]string     `yaml:"roles" oneof:"access|uplink|trunk" doc:"Roles of the switch's ports, by port. access: a few end hosts, see network.hosts.per_access_port; a link at such a port is reported. uplink: other networks, with many hosts and DHCP servers. trunk: many hosts of this network, or a link."`
	Tables   Tables             `yaml:"tables" doc:"Tables that hold the stages of the pipeline, see docs/topics/pipeline.md. auto: as the switch reports. 1: all stages in one table. A mapping: the tables with these numbers."`
	Bundles  string             `yaml:"bundles" oneof:"auto|off" doc:"Whether atomic changes use OpenFlow bundles. auto: if the switch supports them. off: never."`
}

func (s *SwitchIs) defaults() { s.Rewrite, s.Bundles = "auto", "auto" }

// DefaultController returns the configuration of a controller with these services and with default
// values.
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
			Compare:       30 * time.Second,
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
		k.Require(!p.MAC.IsZero() && p.Switch != 0 && p.Port != 0, "network.hosts.pinned."+addr.String(), "incomplete", "set mac, switch and port")
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
		"network.sflow.collector", "without the switches' databases, through which it is configured", "set ovsdb.address or ovsdb.switches, or leave the collector out")
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
