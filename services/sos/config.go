package sos

import (
	"cmp"
	"net/netip"
	"regexp"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// Config is the global configuration of the service. It is kept in the store and changed through
// the API.
type Config struct {
	Enabled bool   `json:"enabled" doc:"Whether new connections are taken; it never affects running sessions"`
	Tuning  Tuning `json:"tuning" doc:"Parameters of transfers whose whitelist entry does not set them"`

	Metric       string            `json:"metric" enum:"latency,hops,utilisation,capacity" doc:"Path metric by which agents are near"`
	EqualLatency agentapi.Duration `json:"equal_latency" doc:"Agents whose latencies differ by less count as equally near"`
	Balance      agents.Balance    `json:"balance" enum:"sessions,throughput" doc:"Load that decides between equally near agents"`

	Idle           agentapi.Duration `json:"idle" doc:"Time without a byte in either direction after which a session ends"`
	PrepareTimeout agentapi.Duration `json:"prepare_timeout" doc:"Deadline of both agents' answers"`
	RulesTimeout   agentapi.Duration `json:"rules_timeout" doc:"Deadline of the switches' answers, for each side"`
	CommitTimeout  agentapi.Duration `json:"commit_timeout" doc:"Deadline of the server's answer to its agent; longer than the agent's own"`
	SilentAfter    agentapi.Duration `json:"silent_after" doc:"How long an agent may be silent before it gets no new sessions; those it has end unless it is known to be alive, or may be"`
	PeerTimeout    agentapi.Duration `json:"peer_timeout" doc:"How long the agents of a session may not hear each other, although neither is known to be dead, before it ends: the longest outage of the network that sessions survive"`

	WarmPeers int `json:"warm_peers" doc:"Peers with which each agent has connections before their first session, for pairs that the whitelist makes likely; 0: none"`

	MaxSetups          int `json:"max_setups" doc:"Connections being set up at once; more go directly"`
	MaxSetupsPerClient int `json:"max_setups_per_client" doc:"The same for one client address"`
	History            int `json:"history" doc:"Ended sessions that are remembered, over restarts too"`
}

// DefaultConfig returns the configuration of a new controller.
func DefaultConfig() Config {
	return Config{
		Enabled: true, Tuning: Tuning{Transport: "tcp", Paths: 1},
		Metric: network.MetricLatency.String(), EqualLatency: agentapi.Duration(2 * time.Millisecond),
		Balance: agents.BalanceSessions,
		Idle:    agentapi.Duration(2 * time.Hour), PrepareTimeout: agentapi.Duration(2 * time.Second),
		RulesTimeout: agentapi.Duration(2 * time.Second), CommitTimeout: agentapi.Duration(4 * time.Second),
		SilentAfter: agentapi.Duration(2200 * time.Millisecond), PeerTimeout: agentapi.Duration(3 * time.Minute),
		WarmPeers: 4, MaxSetups: 2048, MaxSetupsPerClient: 1536, History: 2000,
	}
}

// ConfigChange is a change of the configuration. A nil field leaves its setting unchanged.
type ConfigChange struct {
	Enabled            *bool           `json:"enabled,omitempty"`
	Tuning             *Tuning         `json:"tuning,omitempty"`
	Metric             *string         `json:"metric,omitempty" enum:"latency,hops,utilisation,capacity"`
	EqualLatency       *string         `json:"equal_latency,omitempty" format:"go-duration" minLength:"1" doc:"0s to 1s"`
	Balance            *agents.Balance `json:"balance,omitempty" enum:"sessions,throughput"`
	Idle               *string         `json:"idle,omitempty" format:"go-duration" minLength:"1" doc:"10s to 168h"`
	PrepareTimeout     *string         `json:"prepare_timeout,omitempty" format:"go-duration" minLength:"1" doc:"50ms to 10s"`
	RulesTimeout       *string         `json:"rules_timeout,omitempty" format:"go-duration" minLength:"1" doc:"50ms to 10s"`
	CommitTimeout      *string         `json:"commit_timeout,omitempty" format:"go-duration" minLength:"1" doc:"50ms to 30s"`
	SilentAfter        *string         `json:"silent_after,omitempty" format:"go-duration" minLength:"1" doc:"1.5s to 1m"`
	PeerTimeout        *string         `json:"peer_timeout,omitempty" format:"go-duration" minLength:"1" doc:"3s to 1h"`
	WarmPeers          *int            `json:"warm_peers,omitempty" minimum:"0" maximum:"32"`
	MaxSetups          *int            `json:"max_setups,omitempty" minimum:"1" maximum:"65536"`
	MaxSetupsPerClient *int            `json:"max_setups_per_client,omitempty" minimum:"1" maximum:"65536"`
	History            *int            `json:"history,omitempty" minimum:"0" maximum:"100000"`
}

// Apply returns the changed configuration, or all faults of the change.
func (ch ConfigChange) Apply(c Config) (Config, kit.Faults) {
	var faults kit.Faults
	duration := func(field string, in *string, out *agentapi.Duration, low, high time.Duration) {
		if in == nil {
			return
		}
		v, err := time.ParseDuration(*in)
		faults.Check(err == nil && low <= v && v <= high, field, *in, "a duration with its unit, %v to %v", low, high)
		*out = agentapi.Duration(v)
	}
	duration("equal_latency", ch.EqualLatency, &c.EqualLatency, 0, time.Second)
	duration("idle", ch.Idle, &c.Idle, 10*time.Second, 7*24*time.Hour)
	duration("prepare_timeout", ch.PrepareTimeout, &c.PrepareTimeout, 50*time.Millisecond, 10*time.Second)
	duration("rules_timeout", ch.RulesTimeout, &c.RulesTimeout, 50*time.Millisecond, 10*time.Second)
	duration("commit_timeout", ch.CommitTimeout, &c.CommitTimeout, 50*time.Millisecond, 30*time.Second)
	duration("silent_after", ch.SilentAfter, &c.SilentAfter, 1500*time.Millisecond, time.Minute)
	duration("peer_timeout", ch.PeerTimeout, &c.PeerTimeout, 3*time.Second, time.Hour)
	number := func(field string, in, out *int, low, high int) {
		if in != nil {
			faults.Check(low <= *in && *in <= high, field, *in, "%d to %d", low, high)
			*out = *in
		}
	}
	number("warm_peers", ch.WarmPeers, &c.WarmPeers, 0, agentapi.MaxWarmPeers)
	number("max_setups", ch.MaxSetups, &c.MaxSetups, 1, 65536)
	number("max_setups_per_client", ch.MaxSetupsPerClient, &c.MaxSetupsPerClient, 1, 65536)
	number("history", ch.History, &c.History, 0, 100000)
	faults = append(faults, ch.applyWords(&c)...)
	return c, faults
}

func (ch ConfigChange) applyWords(c *Config) kit.Faults {
	var faults kit.Faults
	if ch.Enabled != nil {
		c.Enabled = *ch.Enabled
	}
	if ch.Metric != nil {
		_, err := topology.ParseMetric(*ch.Metric)
		faults.Check(err == nil, "metric", *ch.Metric, "latency, hops, utilisation or capacity")
		c.Metric = *ch.Metric
	}
	if ch.Balance != nil {
		faults.Check(*ch.Balance == agents.BalanceSessions || *ch.Balance == agents.BalanceThroughput, "balance", *ch.Balance, "sessions or throughput")
		c.Balance = *ch.Balance
	}
	if ch.Tuning != nil {
		faults = append(faults, ch.Tuning.check().WithPrefix("tuning")...)
		c.Tuning = *ch.Tuning
	}
	return faults
}

// metric returns the configured path metric.
func (c *Config) metric() network.Metric {
	m, err := topology.ParseMetric(c.Metric)
	if err != nil {
		return network.MetricLatency
	}
	return m
}

// setupTime returns the time limit of a session's whole set-up.
func (c *Config) setupTime() time.Duration {
	return time.Duration(c.PrepareTimeout) + 2*time.Duration(c.RulesTimeout) + time.Duration(c.CommitTimeout)
}

// MaxPaths bounds the number of paths that one pair of agents uses at once.
const MaxPaths = 8

// Tuning holds the parameters of a transfer. The whitelist entry's parameters come first. A
// parameter that is not set there is taken from the configuration, and if it is not set there
// either, from the agent's own defaults.
type Tuning struct {
	Connections       int    `json:"connections,omitempty" minimum:"0" maximum:"64" doc:"Connections between the agents; 0: chosen by the agent from what it measures"`
	ChunkBytes        int    `json:"chunk_bytes,omitempty" minimum:"0" maximum:"16777216" doc:"Bytes that travel on one connection at a time, 4096 to 16777216; 0: the agent's default"`
	Queue             int    `json:"queue,omitempty" minimum:"0" maximum:"1024" doc:"Chunks by which one connection may run ahead; 0: the agent's default"`
	Transport         string `json:"transport,omitempty" pattern:"^(?:tcp)?$" patternDescription:"tcp, the transport that agents of this version have" example:"tcp" doc:"How the agents speak to each other: tcp"`
	CongestionControl string `json:"congestion_control,omitempty" pattern:"^(?:[a-z][a-z0-9_-]{0,14})?$" patternDescription:"a name from /proc/sys/net/ipv4/tcp_available_congestion_control, such as bbr" example:"bbr" doc:"Congestion control between the agents, one that their kernels have"`
	TLS               *bool  `json:"tls,omitempty" doc:"Encrypt the data between the agents"`
	Share             string `json:"share,omitempty" enum:"polite,equal,all" doc:"What is left to others on the path: polite (the default) yields down to a quarter of it, equal down to a half, all does not yield and is not paced"`
	Weight            int    `json:"weight,omitempty" minimum:"0" maximum:"100" doc:"Weight of a session when the sessions of two agents divide the rate of their path; 0 means 1"`
	Fairness          string `json:"fairness,omitempty" enum:"session,client" doc:"What counts as one when the sessions of two agents divide the rate of their path: each session (the default), or all sessions of a client together, which share by weight what the client gets"`
	Paths             int    `json:"paths,omitempty" minimum:"0" maximum:"8" doc:"Disjoint paths to spread the connections over; 0 means 1"`
}

var congestionName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,14}$`)

// check returns the parameters' faults.
func (t Tuning) check() kit.Faults {
	var faults kit.Faults
	between := func(field string, v, low, high int) {
		faults.Check(v == 0 || low <= v && v <= high, field, v, "%d to %d, or 0 for the default", low, high)
	}
	between("connections", t.Connections, 1, agentapi.MaxConnections)
	between("chunk_bytes", t.ChunkBytes, 4096, 16<<20)
	between("queue", t.Queue, 1, 1024)
	between("paths", t.Paths, 1, MaxPaths)
	between("weight", t.Weight, 1, agentapi.MaxWeight)
	faults.Check(agentapi.Share(t.Share).Valid(), "share", t.Share, "polite, equal or all")
	faults.Check(agentapi.Fairness(t.Fairness).Valid(), "fairness", t.Fairness, "session or client")
	faults.Check(t.Transport == "" || t.Transport == "tcp", "transport", t.Transport, "tcp, the transport that agents of this version have")
	faults.Check(t.CongestionControl == "" || congestionName.MatchString(t.CongestionControl),
		"congestion_control", t.CongestionControl, "a name from /proc/sys/net/ipv4/tcp_available_congestion_control, such as bbr")
	return faults
}

// over returns a copy of t in which parameters that are not set are taken from base.
func (t Tuning) over(base Tuning) Tuning {
	return Tuning{
		Connections: cmp.Or(t.Connections, base.Connections), ChunkBytes: cmp.Or(t.ChunkBytes, base.ChunkBytes),
		Queue: cmp.Or(t.Queue, base.Queue), Paths: cmp.Or(t.Paths, base.Paths), Transport: cmp.Or(t.Transport, base.Transport),
		CongestionControl: cmp.Or(t.CongestionControl, base.CongestionControl), TLS: cmp.Or(t.TLS, base.TLS),
		Share: cmp.Or(t.Share, base.Share), Weight: cmp.Or(t.Weight, base.Weight), Fairness: cmp.Or(t.Fairness, base.Fairness),
	}
}

// params returns the parameters in the form that agents receive.
func (t Tuning) params() agentapi.Params {
	return agentapi.Params{
		Connections: t.Connections, ChunkBytes: t.ChunkBytes, Queue: t.Queue,
		Transport: t.Transport, CongestionControl: t.CongestionControl,
		TLS: t.TLS != nil && *t.TLS, Paths: max(t.Paths, 1), Share: agentapi.Share(t.Share), Weight: t.Weight, Fairness: agentapi.Fairness(t.Fairness),
	}
}

// Section is the part of the controller's configuration below the key sos. Everything that an
// operator changes while the controller runs (agents, whitelist, tuning) is in the store instead.
type Section struct {
	Enabled bool `yaml:"enabled" doc:"Off: the service and its part of the API do not exist."`

	ControlSubnets []netip.Prefix `yaml:"control_subnets" doc:"Subnets in which agents that announce themselves may have their control address. Elsewhere it must be the address from which they announce themselves."`

	Settle time.Duration `yaml:"settle" min:"1s" max:"5m" doc:"How long after a start the service waits for the switches of sessions that go on from before."`
	Linger time.Duration `yaml:"linger" min:"100ms" max:"1m" doc:"How long a session's rules stay after its agents are done. Their end hosts have acknowledged everything then, but may say so once more."`
}

// DefaultSection returns the section with its default values.
func DefaultSection() *Section {
	return &Section{Enabled: true, Settle: 10 * time.Second, Linger: 200 * time.Millisecond}
}

// Check implements config.Section.
func (*Section) Check(*config.Checker, *config.Controller) {}
