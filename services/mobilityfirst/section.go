package mobilityfirst

import (
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/services/mobilityfirst/nameservice"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
	"github.com/sluice-net/sluice/services/mobilityfirst/redisnames"
	"github.com/sluice-net/sluice/services/mobilityfirst/replicas"
)

// Section is the part of the controller's configuration below the key mobilityfirst.
type Section struct {
	Enabled  bool                   `yaml:"enabled" doc:"Off: the service and its part of the API do not exist; hosts find names by broadcasts, and send to Ethernet addresses."`
	Lease    time.Duration          `yaml:"lease" min:"30s" max:"5m" doc:"How long a path between two names exists unless it is requested again, as sending hosts do."`
	MaxPaths int                    `yaml:"max_paths" min:"1" max:"1000000" doc:"Maximum number of paths: a quarter of them may be requested from one switch, half of those from one port. Each has two rules at every switch that it passes. Between other names frames go by Ethernet addresses."`
	Nodes    map[string]NodeSection `yaml:"nodes" reload:"yes" doc:"Storage nodes, compute nodes and caches whose load the controller monitors, by name. They can only be changed here, and are removed when they are removed here; further nodes are declared by the API. The controller uses the certificate of agents.tls, and nodes have one of role node."`
	GNRS     GNRSSection            `yaml:"gnrs" doc:"A name service in the controller, like \"sluice mf gnrs\": it stores where names are."`
}

// NodeSection declares a node; see NodeSpec.
type NodeSection struct {
	URL      string `yaml:"url" doc:"Where its control server listens (--control-listen), like https://192.0.2.7:8440."`
	Draining bool   `yaml:"draining" doc:"It gets no new paths if there is another node."`
}

// ParsedNodes returns the configured nodes by name, and every fault in their declarations.
func (m *Section) ParsedNodes() (map[string]agents.AgentRecord, kit.Faults) {
	at := map[string]string{}
	return kit.ParseSpecs("nodes", m.Nodes, func(name string, x NodeSection) (agents.AgentRecord, kit.Faults) {
		spec := NodeSpec{Name: name, URL: x.URL}
		rec, faults := spec.Parse()
		rec.Draining = x.Draining
		other, taken := at[rec.URL]
		faults.Check(!taken, "url", x.URL, "a URL of its own: node %s has this one", other)
		at[rec.URL] = name
		return rec, faults
	})
}

// Check implements config.Section.
func (m *Section) Check(k *config.Checker, c *config.Controller) {
	_, faults := m.ParsedNodes()
	faults.Report(k, Name)
	m.checkNameService(k, c.DataDir)
}

// ForDocument turns on the name service, which is off by default, so that the OpenAPI document
// has its operations.
func (m *Section) ForDocument() {
	m.GNRS.Listen = config.Address{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 5001)}
}

// GNRSSection configures the name service in the controller.
type GNRSSection struct {
	Listen   config.Address            `yaml:"listen" doc:"UDP address of the service, one of the machine's. Empty: there is no service, unless there are domains."`
	Dir      string                    `yaml:"dir" pattern:"(/.*)?" form:"an absolute path like /var/lib/sluice/names, or nothing" doc:"Folder of the names, which nothing else may use. Empty: names below data_dir."`
	Names    int                       `yaml:"names" min:"1" max:"1000000000" doc:"Maximum number of names."`
	Cache    config.Size               `yaml:"cache" min:"1MiB" max:"1024GiB" doc:"Size of the cache in memory."`
	Self     string                    `yaml:"self" doc:"Name of this domain, at whose address the service listens."`
	Domains  map[string]config.Address `yaml:"domains" doc:"The domains that share the names, by name, with the addresses of their name services. All domains must be configured with the same ones."`
	Replicas int                       `yaml:"replicas" min:"1" max:"1024" doc:"Number of domains that keep each name."`
	Redis    RedisSection              `yaml:"redis" doc:"A Redis Cluster that holds the names, instead of the folder."`
}

// RedisSection configures the Redis Cluster that holds names.
type RedisSection struct {
	Nodes    []string      `yaml:"nodes" pattern:"[^\\s/]+:[0-9]+" form:"a host and a port like 10.0.0.7:6379" doc:"Some of its nodes. Empty: the names are in the folder."`
	Username string        `yaml:"username" doc:"User at the cluster, if it is not the one named default."`
	Password config.Secret `yaml:"password" doc:"The user's password. It is better given in the environment than in the file."`
	TLS      config.TLS    `yaml:"tls" doc:"Certificates for a cluster with TLS; ca alone is enough if the cluster requires no client certificate."`
	Replicas int           `yaml:"replicas" min:"0" max:"16" doc:"Number of a master's replicas that must have a write in memory before it is acknowledged."`
	Fsync    string        `yaml:"fsync" oneof:"always|everysec|no" doc:"Minimum appendfsync of the nodes; no also allows nodes that write nothing to disk. While a node's setting is weaker, nothing is written."`
}

// DefaultSection returns the section with its default values.
func DefaultSection() *Section {
	return &Section{
		Enabled: true, Lease: DefaultLease, MaxPaths: DefaultMaxPaths,
		GNRS: GNRSSection{Names: namestore.DefaultMaxNames, Cache: namestore.DefaultCache, Replicas: replicas.DefaultK, Redis: RedisSection{Fsync: string(redisnames.FsyncAlways)}},
	}
}

// NameService returns the options of the name service in the controller. Its state is in a folder
// below dataDir, unless the section names another folder. ok is false if the section has no address
// for the service: the controller then runs none.
func (m *Section) NameService(dataDir string) (o nameservice.Options, ok bool) {
	g := &m.GNRS
	if !g.Listen.IsValid() && len(g.Domains) == 0 && g.Self == "" {
		return o, false
	}
	o = nameservice.Options{Dir: g.Dir, MaxNames: uint64(g.Names), Cache: int64(g.Cache), Listen: g.Listen.AddrPort, Self: g.Self, Replicas: g.Replicas}
	r := &g.Redis
	o.Redis = nameservice.Redis{Nodes: r.Nodes, User: r.Username, Password: string(r.Password), TLS: r.TLS.Files(), Replicas: r.Replicas, Fsync: redisnames.Fsync(r.Fsync)}
	if o.Dir == "" {
		o.Dir = filepath.Join(dataDir, "names")
	}
	for _, name := range slices.Sorted(maps.Keys(g.Domains)) {
		o.Domains = append(o.Domains, replicas.Domain{Name: name, Addr: g.Domains[name].AddrPort})
	}
	return o, true
}

func (m *Section) checkNameService(k *config.Checker, dataDir string) {
	g := &m.GNRS
	o, ok := m.NameService(dataDir)
	if !ok {
		k.Require(len(g.Redis.Nodes) == 0, "mobilityfirst.gnrs.redis.nodes", "of no name service", "set mobilityfirst.gnrs.listen, where it is asked; or remove it")
		return
	}
	at, err := o.At()
	if err != nil {
		k.Fail("mobilityfirst.gnrs", err.Error(), "name this domain in self, with its address among domains; or give listen alone")
		return
	}
	if err := o.Redis.Check(); err != nil {
		k.Fail("mobilityfirst.gnrs.redis", err.Error(), "name nodes of the cluster, and user and password, certificate and key together; or none of it")
	}
	k.Require(len(g.Redis.TLS.Roles) == 0, "mobilityfirst.gnrs.redis.tls.roles", "without meaning", "remove it: nodes of a cluster need no role")
	k.Require(at.IsValid() && !at.Addr().IsUnspecified(), "mobilityfirst.gnrs.listen", "not one address", "one of this machine's, from which answers come")
}
