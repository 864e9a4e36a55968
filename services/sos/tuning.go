package sos

import (
	"cmp"
	"regexp"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// MaxPaths is how many paths one pair of agents may use at once.
const MaxPaths = 8

// Tuning holds the parameters of a transfer. A parameter that is not set is taken from the
// next level: entry, configuration, the agent's own default.
type Tuning struct {
	Connections       int    `json:"connections,omitempty" minimum:"0" maximum:"64" doc:"Connections between the agents; 0: chosen by the agent from what it measures"`
	ChunkBytes        int    `json:"chunk_bytes,omitempty" minimum:"0" maximum:"16777216" doc:"Bytes that travel on one connection at a time, 4096 to 16777216; 0: the agent's default"`
	Queue             int    `json:"queue,omitempty" minimum:"0" maximum:"1024" doc:"Chunks by which one connection may run ahead; 0: the agent's default"`
	Transport         string `json:"transport,omitempty" pattern:"^(?:tcp)?$" patternDescription:"tcp, the transport that agents of this version have" example:"tcp" doc:"How the agents speak to each other: tcp"`
	CongestionControl string `json:"congestion_control,omitempty" pattern:"^(?:[a-z][a-z0-9_-]{0,14})?$" patternDescription:"a name from /proc/sys/net/ipv4/tcp_available_congestion_control, such as bbr" example:"bbr" doc:"Congestion control between the agents, one that their kernels have"`
	TLS               *bool  `json:"tls,omitempty" doc:"Encrypt the data between the agents"`
	Share             string `json:"share,omitempty" enum:"polite,equal,all" doc:"What is left to others on the path: polite (the default) yields down to a quarter of it, equal down to a half, all does not yield and is not paced"`
	Weight            int    `json:"weight,omitempty" minimum:"0" maximum:"100" doc:"Weight of a session when the sessions of two agents divide the rate of their path; 0 means 1"`
	Paths             int    `json:"paths,omitempty" minimum:"0" maximum:"8" doc:"Disjoint paths to spread the connections over; 0 means 1"`
}

var congestionName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,14}$`)

// check returns the faults of the parameters.
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
	faults.Check(t.Transport == "" || t.Transport == "tcp", "transport", t.Transport, "tcp, the transport that agents of this version have")
	faults.Check(t.CongestionControl == "" || congestionName.MatchString(t.CongestionControl),
		"congestion_control", t.CongestionControl, "a name from /proc/sys/net/ipv4/tcp_available_congestion_control, such as bbr")
	return faults
}

// over returns t with parameters that are not set taken from base.
func (t Tuning) over(base Tuning) Tuning {
	return Tuning{
		Connections: cmp.Or(t.Connections, base.Connections), ChunkBytes: cmp.Or(t.ChunkBytes, base.ChunkBytes),
		Queue: cmp.Or(t.Queue, base.Queue), Paths: cmp.Or(t.Paths, base.Paths), Transport: cmp.Or(t.Transport, base.Transport),
		CongestionControl: cmp.Or(t.CongestionControl, base.CongestionControl), TLS: cmp.Or(t.TLS, base.TLS),
		Share: cmp.Or(t.Share, base.Share), Weight: cmp.Or(t.Weight, base.Weight),
	}
}

// params returns the parameters in the form that agents receive.
func (t Tuning) params() agentapi.Params {
	return agentapi.Params{
		Connections: t.Connections, ChunkBytes: t.ChunkBytes, Queue: t.Queue,
		Transport: t.Transport, CongestionControl: t.CongestionControl,
		TLS: t.TLS != nil && *t.TLS, Paths: max(t.Paths, 1), Share: agentapi.Share(t.Share), Weight: t.Weight,
	}
}
