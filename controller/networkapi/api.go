package networkapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Names maps switches to their names in the configuration.
type Names map[openflow.DatapathID]string

// Register adds the network's operations and metrics to the API. It returns the operations on paths,
// whose field Available a service may set.
func Register(a *api.API, core *network.Network, names Names) *Paths {
	a.Metrics().MustRegister(newMetrics(core))
	s := &server{core, names}
	get(a, "network/switches", "List the connected switches", s.switches)
	get(a, "network/switches/{dpid}", "Show a switch and its ports", s.oneSwitch)
	get(a, "network/ports", "List ports with their traffic", s.ports)
	get(a, "network/links", "List the links between switches, each direction by itself", s.links)
	get(a, "network/links/history", "Show what was measured of a link within the last hour", s.linkHistory)
	get(a, "network/talkers", "List who uses the network most, as samples of packets let expect (sFlow)", s.talkers)
	get(a, "network/hosts", "List the known end hosts", s.hosts)
	get(a, "network/paths", "Search paths between two places", s.paths)
	get(a, "network/rules", "List the rules that services and the core want, with owner and counters", s.rules)
	get(a, "network/trace", "Say which rule of which owner handles a packet at each hop, and why", s.trace)
	registerDiagnosis(a, s)
	return registerPaths(a, s)
}

// get adds a GET operation below /api/v1. more holds the sentences of the operation's description, if
// it has one.
func get[I, O any](a *api.API, path, summary string, f func(context.Context, *I) (*body[O], error), more ...string) {
	id := strings.NewReplacer("/", "-", "{", "", "}", "").Replace(path)
	tag, _, _ := strings.Cut(path, "/")
	huma.Register(a.Huma(), huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: api.Prefix + "/" + path, Summary: summary, Description: strings.Join(more, " "),
		Tags: []string{tag}, Errors: []int{http.StatusNotFound, http.StatusUnprocessableEntity},
	}, f)
}

type body[T any] struct{ Body T }

type nothing struct{}

type server struct {
	core  *network.Network
	names Names
}
