package sos

import (
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// Config is the service's global configuration. It is kept in the store and changed through
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
		MaxSetups: 2048, MaxSetupsPerClient: 1536, History: 2000,
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
