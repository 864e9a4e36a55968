package sos

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// Record is a session as the API and the event stream show it.
type Record struct {
	ID          string         `json:"id"`
	State       State          `json:"state" doc:"setup, live, resetting, ending or ended"`
	Client      netip.AddrPort `json:"client"`
	Server      netip.AddrPort `json:"server"`
	Entry       string         `json:"entry" doc:"Whitelist entry that allowed it"`
	ClientAgent string         `json:"client_agent,omitempty"`
	ServerAgent string         `json:"server_agent,omitempty"`
	ClientPath  []string       `json:"client_path,omitempty" doc:"From the client to its agent: switch/in>out"`
	ServerPath  []string       `json:"server_path,omitempty" doc:"From the server to its agent"`
	AgentPaths  [][]string     `json:"agent_paths,omitempty" doc:"Between the agents; none if a network that this controller does not manage connects them"`
	Parameters  Tuning         `json:"parameters"`
	ClassUp     string         `json:"class_up,omitempty" doc:"Class of traffic of the client's packets on their whole path"`
	ClassDown   string         `json:"class_down,omitempty" doc:"The same for the server's packets"`
	Connections int            `json:"connections,omitempty" doc:"Connections in use between the agents"`
	Why         string         `json:"why_connections,omitempty" doc:"Why this number of connections"`
	Warm        int            `json:"connections_warm,omitempty" doc:"Connections that were open before the session, so that it did not wait for them"`

	StartUp   string `json:"start_up,omitempty" doc:"How fast the client's agent began to send to the other, and why"`
	StartDown string `json:"start_down,omitempty" doc:"The same for the server's agent"`

	Started time.Time         `json:"started"`
	Ended   *time.Time        `json:"ended,omitempty"`
	Took    agentapi.Duration `json:"took" doc:"From the first packet until now or the end"`
	Setup   Steps             `json:"setup"`
	How     string            `json:"how,omitempty" doc:"How it ended"`

	BytesUp       uint64   `json:"bytes_up" doc:"From the client"`
	BytesDown     uint64   `json:"bytes_down" doc:"To the client"`
	BitsPerSecond float64  `json:"bits_per_second" doc:"Mean of both directions together"`
	Current       float64  `json:"current_bits_per_second,omitempty" doc:"The same between the latest two reports of its agents; missing until there are two, while nothing is carried, and when it has ended"`
	Retransmits   uint64   `json:"retransmits" doc:"TCP segments sent again between the agents"`
	Resent        uint64   `json:"resent" doc:"Chunks sent again after the loss of a connection"`
	Lost          int      `json:"connections_lost"`
	Samples       []Sample `json:"samples,omitempty" doc:"The course of the transfer"`
}

// record returns the record of the session. The lock is held.
func (ss *session) record() Record {
	r := Record{
		ID: ss.id.String(), State: ss.state, Client: ss.flow.client, Server: ss.flow.server, Entry: ss.Entry,
		Parameters: ss.Tuning, Started: ss.Started, Took: agentapi.Duration(time.Since(ss.Started)),
		Setup: ss.steps, How: ss.how, Retransmits: ss.retransmits(),
		ClientPath: hops(ss.Layout.ClientSide.Path), ServerPath: hops(ss.Layout.ServerSide.Path),
		Samples: slices.Clone(ss.samples.samples),
	}
	r.ClientAgent, r.ServerAgent, r.AgentPaths = ss.ClientAgent, ss.ServerAgent, ss.agentPaths
	r.ClassUp, r.ClassDown = ss.Layout.Up.Name, ss.Layout.Down.Name
	client, server := ss.last[agentapi.RoleClient], ss.last[agentapi.RoleServer]
	r.BytesUp, r.BytesDown = max(client.BytesUp, server.BytesUp), max(client.BytesDown, server.BytesDown)
	r.Resent, r.Lost = client.ChunksResent+server.ChunksResent, client.ConnsLost+server.ConnsLost
	r.Connections, r.Why, r.Warm = client.Connections, client.Why, client.ConnsWarm
	r.StartUp, r.StartDown = client.Start, server.Start
	if ss.state == StateEnded {
		now := time.Now()
		r.Ended = &now
	} else {
		r.Current = ss.samples.rate()
	}
	r.BitsPerSecond = bitsPerSecond(r.BytesUp+r.BytesDown, r.Took)
	return r
}

// bitsPerSecond returns the mean rate of the given number of bytes.
func bitsPerSecond(bytes uint64, took agentapi.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(bytes) * 8 / time.Duration(took).Seconds()
}

// hops formats a path as records show it.
func hops(path []network.Hop) []string {
	var out []string
	for _, h := range path {
		out = append(out, fmt.Sprintf("%v>%d", inPort(h), h.Out))
	}
	return out
}

// recordCounters records an agent's latest counters, and adds a sample. The lock is held.
func (ss *session) recordCounters(r agentapi.Role, c agentapi.Counters, at time.Time) {
	ss.last[r] = c
	if r != agentapi.RoleClient && ss.last[agentapi.RoleClient] != (agentapi.Counters{}) {
		return
	}
	ss.samples.add(Sample{At: at, BytesUp: c.BytesUp, BytesDown: c.BytesDown, Retransmits: ss.retransmits()})
}

// retransmits returns the number of segments that both agents have sent again.
func (ss *session) retransmits() uint64 {
	return ss.last[agentapi.RoleClient].Retransmits + ss.last[agentapi.RoleServer].Retransmits
}

// maxSamples bounds the number of samples kept of one session.
const maxSamples = 128

// Sample is the state of a transfer at one time.
type Sample struct {
	At          time.Time `json:"at"`
	BytesUp     uint64    `json:"bytes_up" doc:"From the client so far"`
	BytesDown   uint64    `json:"bytes_down" doc:"To the client so far"`
	Retransmits uint64    `json:"retransmits" doc:"TCP segments sent again between the agents so far"`
}

// sampler keeps the samples of a session in bounded memory. When it is full, it drops every other
// sample, and then takes new ones half as often.
type sampler struct {
	samples []Sample
	every   time.Duration
	// before and last are the last two samples that were added, kept or not.
	before, last Sample
}

func (s *sampler) add(x Sample) {
	s.before, s.last = s.last, x
	if n := len(s.samples); n > 0 && x.At.Sub(s.samples[n-1].At) < s.every {
		return
	}
	if len(s.samples) == maxSamples {
		for i := range maxSamples / 2 {
			s.samples[i] = s.samples[2*i]
		}
		s.samples = s.samples[:maxSamples/2]
		s.every = max(2*s.every, 2*time.Second) - 100*time.Millisecond
	}
	s.samples = append(s.samples, x)
}

// rate returns the rate between the last two samples, both directions together, in bit/s; 0 if
// there are fewer than two.
func (s *sampler) rate() float64 {
	seconds := s.last.At.Sub(s.before.At).Seconds()
	before, last := s.before.BytesUp+s.before.BytesDown, s.last.BytesUp+s.last.BytesDown
	if s.before.At.IsZero() || seconds <= 0 || last < before {
		return 0
	}
	return float64(last-before) * 8 / seconds
}

// endedOrderly reports whether both agents are sure that their end hosts know of the session's end.
func endedOrderly(ended map[agentapi.Role]agentapi.SessionRecord) bool {
	for _, r := range roles {
		switch ended[r].Reason {
		case "", agentapi.ReasonPeerLost, agentapi.ReasonFailed:
			return false
		}
	}
	return true
}

// describeEnd describes how a session ended, from the final records of its agents.
func describeEnd(ended map[agentapi.Role]agentapi.SessionRecord) string {
	client, server := ended[agentapi.RoleClient], ended[agentapi.RoleServer]
	pick := func(r agentapi.SessionRecord) string {
		if r.Detail != "" {
			return string(r.Reason) + ": " + r.Detail
		}
		return string(r.Reason)
	}
	switch {
	case client.Reason == server.Reason, server.Reason == "":
		return pick(client)
	case client.Reason == "":
		return pick(server)
	}
	// One agent knows the cause, and the other knows only that its peer gave up.
	for _, r := range []agentapi.SessionRecord{client, server} {
		switch r.Reason {
		case agentapi.ReasonPeerReset, agentapi.ReasonPeerLost, agentapi.ReasonClosed, agentapi.ReasonAborted:
		default:
			return pick(r)
		}
	}
	return pick(client) + "; server's agent: " + pick(server)
}
