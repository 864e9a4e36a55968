package mobilityfirst

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/store"
)

// Name is the service's name in the API's paths and as the owner of rules.
const Name = "mobilityfirst"

// Defaults of Options.
const (
	DefaultLease    = time.Minute
	DefaultMaxPaths = 16384
)

// MinLease is the shortest lease: hosts ask again 15 s before a lease ends.
const MinLease = 30 * time.Second

// MaxLease is the longest lease that hosts accept.
const MaxLease = 5 * time.Minute

// leaseGrace is how much longer than its lease a path exists, because its hosts count the lease
// from the time at which they learned of it.
const leaseGrace = 10 * time.Second

// Options configures a Service.
type Options struct {
	Network kit.Network
	Rules   kit.Ledger
	Bus     *event.Bus
	Log     *slog.Logger
	// Metric selects the routes of paths.
	Metric network.Metric
	// Lease is how long a path exists unless it is asked for again, from MinLease to MaxLease.
	Lease time.Duration
	// Store holds the nodes that are declared by the API.
	Store store.Store
	// Configured holds the nodes of the configuration, by name.
	Configured map[string]agents.AgentRecord
	// NodeTLS holds the controller's certificate and the CA of the nodes; it is nil if all nodes
	// run on this machine. Dial connects to nodes; nil selects the ordinary dialer.
	NodeTLS *tls.Config
	Dial    control.Dialer
	// MaxPaths limits the paths at one time. Hosts behind one switch may open a quarter of them,
	// and hosts behind one port half of that. Each path has two rules at every switch that it
	// passes.
	MaxPaths int
}

const (
	// workers is the number of goroutines that verify signatures; up to maxBacklog messages wait
	// for them.
	workers, maxBacklog = 4, 1024
	// rerouteDelay is how long changes in the network are collected before paths are checked.
	rerouteDelay = 20 * time.Millisecond
	// sweepInterval is the time between two removals of expired entries.
	sweepInterval = 5 * time.Second
)
