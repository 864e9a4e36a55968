package mobilityfirst

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// NameInfo describes a name, as the API shows it.
type NameInfo struct {
	Name   string      `json:"name" doc:"40 hex digits"`
	Places []PlaceInfo `json:"places" doc:"Where its hosts have said hello in the last 35 s"`
}

// PathInfo describes a path, as the API shows it.
type PathInfo struct {
	ID    string         `json:"id"`
	Ends  []EndInfo      `json:"ends" doc:"The two names that it connects"`
	Hops  []string       `json:"hops" doc:"Ports by which frames to the second end leave each switch"`
	Lease units.Duration `json:"lease" doc:"Time until it ends unless it is requested again"`
}

// EndInfo describes one end of a path.
type EndInfo struct {
	Name string `json:"name"`
	PlaceInfo
	Label uint16 `json:"label" doc:"VLAN tag of frames to this end"`
}

// String returns the end in one line.
func (e EndInfo) String() string { return fmt.Sprintf("%s at %v by %d", e.Name, e.PlaceInfo, e.Label) }

// NameEvent is the payload of the event that a name has a new place.
type NameEvent struct {
	Name string `json:"name"`
	PlaceInfo
}

// Register adds the service's operations and metrics to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics.own)
	r := kit.NewREST(a, Name)
	kit.Register(r, http.MethodGet, "names", "List names and their places",
		func(_ context.Context, in *kit.Cursor) (*kit.Page[NameInfo], error) {
			page, next := kit.After(s.names.infos(), func(i NameInfo) string { return i.Name }, *in)
			return &kit.Page[NameInfo]{Link: next, Body: page}, nil
		})
	kit.Register(r, http.MethodGet, "paths", "List the paths between names",
		func(_ context.Context, in *kit.Cursor) (*kit.Page[PathInfo], error) {
			page, next := kit.After(s.paths.infos(time.Now()), func(i PathInfo) string { return i.ID }, *in)
			return &kit.Page[PathInfo]{Link: next, Body: page}, nil
		})
	s.registerNodes(r)
}

// infos returns all names, sorted.
func (n *names) infos() []NameInfo {
	n.mu.Lock()
	places := make(map[frame.GUID][]place, len(n.byName))
	for name, x := range n.byName {
		if all := x.appendPlaces(nil); len(all) > 0 {
			places[name] = all
		}
	}
	n.mu.Unlock()
	all := make([]NameInfo, 0, len(places))
	for name, some := range places {
		i := NameInfo{Name: name.String()}
		for _, at := range some {
			i.Places = append(i.Places, placeInfo(at))
		}
		slices.SortFunc(i.Places, func(a, b PlaceInfo) int { return strings.Compare(a.String(), b.String()) })
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b NameInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// infos returns all paths, sorted by their identifiers.
func (x *paths) infos(now time.Time) []PathInfo {
	routes := x.routes()
	all := make([]PathInfo, len(routes))
	for i, p := range routes {
		lease := time.Unix(0, p.expires.Load()).Sub(now)
		info := PathInfo{ID: fmt.Sprintf("%016x", p.id), Lease: units.Duration(max(lease, 0).Round(time.Second)), Ends: []EndInfo{
			{p.low.name.String(), placeInfo(p.low.place), p.toLow}, {p.high.name.String(), placeInfo(p.high.place), p.toHigh},
		}}
		for _, hop := range p.hops {
			info.Hops = append(info.Hops, fmt.Sprintf("%v:%d", hop.Switch, hop.Out))
		}
		all[i] = info
	}
	slices.SortFunc(all, func(a, b PathInfo) int { return strings.Compare(a.ID, b.ID) })
	return all
}
