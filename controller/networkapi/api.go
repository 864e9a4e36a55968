package networkapi

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/network/trace"
	"github.com/sluice-net/sluice/openflow"
)

// Core is what the operations ask of the network.
type Core interface {
	Switches() []*network.Switch
	Switch(openflow.DatapathID) (*network.Switch, bool)
	Topology() *network.Topology
	Hosts() []network.Host
	HostByIP(netip.Addr) (network.Host, bool)
	RefusedClaims() map[string]uint64
	UnsavedHosts() int
	IsEdge(network.PortRef) bool
	PortRate(network.PortRef) (stats.Rate, bool)
	LinkLoad(network.Link) stats.Load
	LinkHistory(from network.PortRef, since time.Time) []stats.Track
	Talkers(limit int, of func(stats.Conversation) bool) []stats.Talker
	PushStats() network.PushStats
	Rules(openflow.DatapathID) ([]rule.Installed, bool)
	CountedRules(context.Context, openflow.DatapathID) ([]rule.Installed, error)
	Trace(context.Context, trace.Description) (trace.Trace, error)
	Diagnose(mtu int) (diagnosis.Report, error)
	Diagnosis() (r diagnosis.Report, ok bool)
}

// Names gives switches the names that the configuration has for them.
type Names map[openflow.DatapathID]string

// Register adds the operations and metrics. It returns those on paths, whose view of
// what links have available a service may complete.
func Register(a *api.API, core Core, names Names) *Paths {
	a.Metrics().MustRegister(newMetrics(core))
	s := &server{core, names}
	get(a, "switches", "List the connected switches", s.switches)
	get(a, "switches/{dpid}", "Show a switch and its ports", s.oneSwitch)
	get(a, "ports", "List ports with their traffic", s.ports)
	get(a, "links", "List the links between switches, each direction by itself", s.links)
	get(a, "links/history", "Show what was measured of a link within the last hour", s.linkHistory)
	get(a, "talkers", "List who uses the network most, as samples of packets let expect (sFlow)", s.talkers)
	get(a, "hosts", "List the known end hosts", s.hosts)
	get(a, "paths", "Search paths between two places", s.paths)
	get(a, "rules", "List the rules that services and the core want, with owner and counters", s.rules)
	get(a, "trace", "Say which rule of which owner handles a packet at each hop, and why", s.trace)
	registerDiagnosis(a, s)
	return registerPaths(a, s)
}

// get adds one reading operation below /api/v1/network.
func get[I, O any](a *api.API, path, summary string, f func(context.Context, *I) (*body[O], error)) {
	id := "network-"
	for _, c := range path {
		switch c {
		case '/':
			id += "-"
		case '{', '}':
		default:
			id += string(c)
		}
	}
	huma.Register(a.Huma(), huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: api.Prefix + "/network/" + path, Summary: summary,
		Tags: []string{"network"}, Errors: []int{http.StatusNotFound, http.StatusUnprocessableEntity},
	}, f)
}

type body[T any] struct{ Body T }

type nothing struct{}

type server struct {
	core  Core
	names Names
}
