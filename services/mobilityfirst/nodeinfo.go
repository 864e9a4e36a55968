package mobilityfirst

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
)

// NodeSpec declares a node. The node itself reports its name in MobilityFirst and what it does.
type NodeSpec struct {
	Name string `json:"name" example:"depot-1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$" patternDescription:"1 to 63 lower-case letters, digits, dots and dashes" doc:"Name of the node for operators: lower-case letters, digits, dots and dashes"`
	URL  string `json:"url" pattern:"^https?://(?:\\[[0-9A-Fa-f:.]+\\]|[0-9A-Za-z.-]+):[0-9]{1,5}/?$" patternDescription:"a URL like https://192.0.2.7:8440" example:"https://192.0.2.7:8440" doc:"Address of its control server"`
}

// Parse returns the record of the declared node, and the faults in its declaration.
func (s *NodeSpec) Parse() (agents.AgentRecord, kit.Faults) {
	rec, faults := agents.Parse(control.AgentSpec{Name: s.Name, URL: s.URL})
	faults.Check(nodeName.MatchString(s.Name), "name", s.Name, "1 to 63 lower-case letters, digits, dots and dashes")
	return rec, faults
}

var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// NodeInfo describes a node, as the API shows it.
type NodeInfo struct {
	NodeSpec
	Origin   string          `json:"origin" enum:"file,api" doc:"Where it is declared and can be changed: the configuration file or the API"`
	Kind     string          `json:"kind,omitempty" enum:"storage,compute,cache" doc:"What it does; omitted until it has reported"`
	GUID     string          `json:"guid,omitempty" doc:"Name that it has attached, 40 hex digits; omitted until it has proven one"`
	State    agents.Liveness `json:"state" enum:"unknown,up,silent"`
	Draining bool            `json:"draining" doc:"It gets no new paths if there is another node"`
	Standing string          `json:"standing" enum:"fit,full,draining,silent" doc:"Whether new paths to its name lead to it before others (fit) or after them"`
	Load     float64         `json:"load" doc:"Used part of its capacity, from 0 to 1: of a storage node's disk, of a compute node's queue"`
	Places   []PlaceInfo     `json:"places" doc:"Places of its name that it has reported"`
	LastSeen *time.Time      `json:"last_seen,omitempty"`
	Error    string          `json:"error,omitempty" doc:"The node's fault, if it has one"`
	Version  string          `json:"version,omitempty"`
	CPU      float64         `json:"cpu" doc:"Processors that its process uses; 1 is one processor"`
	Memory   uint64          `json:"memory_bytes" doc:"Its resident memory"`

	Storage *nodeapi.StorageReport `json:"storage,omitempty"`
	Compute *nodeapi.ComputeReport `json:"compute,omitempty"`
	Cache   *nodeapi.CacheReport   `json:"cache,omitempty"`
}

// maxTextLen limits the bytes shown of a text that comes from a node.
const maxTextLen = 300

// FunctionInfo describes a function at one of its nodes.
type FunctionInfo struct {
	GUID     string          `json:"guid" doc:"The function's name, 40 hex digits; empty until its node has proven it"`
	Node     string          `json:"node"`
	State    agents.Liveness `json:"state" enum:"unknown,up,silent"`
	Standing string          `json:"standing" enum:"fit,full,draining,silent" doc:"Whether new paths lead to the node"`
	nodeapi.ComputeReport
}

// registerNodes adds the operations on nodes.
func (s *Service) registerNodes(to kit.REST) {
	resource := kit.Resource[agents.AgentRecord, NodeSpec, NodeInfo]{
		Collection: s.Nodes(), Path: "nodes", Field: "name", Show: s.nodeInfos,
		Parse: func(path string, spec NodeSpec) (string, agents.AgentRecord, error) {
			rec, faults := spec.Parse()
			if before, ok := s.Nodes().Item(path); ok {
				rec.Draining, rec.Added = before.Value.Draining, before.Value.Added
			}
			return spec.Name, rec, faults.Err()
		},
		Admit: func(ctx context.Context, _ string, rec agents.AgentRecord) error {
			return s.nodes.registry.Add(ctx, rec)
		},
	}
	resource.Register(to)
	kit.Register(to, http.MethodPost, "nodes/{name}/drain", "Give a node no new paths if there is another node, or end that", s.drain)
	kit.Register(to, http.MethodGet, "functions", "List the functions of compute nodes, by their names; a page begins after GUID/NODE",
		func(_ context.Context, in *kit.Cursor) (*kit.Page[FunctionInfo], error) {
			page, next := kit.After(s.functions(), func(f FunctionInfo) string { return f.GUID + "/" + f.Node }, *in)
			return &kit.Page[FunctionInfo]{Link: next, Body: page}, nil
		})
	s.registerCustody(to)
}

// draining is a request to drain a node, or to stop draining it.
type draining struct {
	kit.ByName
	Body control.DrainRequest
}

func (s *Service) drain(ctx context.Context, in *draining) (*kit.Body[NodeInfo], error) {
	x, ok := s.Nodes().Item(in.Name)
	switch {
	case ok && x.Configured && x.Value.Draining != in.Body.On:
		return nil, api.Configured("path.name", in.Name, Name+".nodes."+in.Name+".draining")
	case ok && x.Value.Draining == in.Body.On:
		return &kit.Body[NodeInfo]{Body: s.nodeInfo(x)}, nil
	}
	if err := s.nodes.registry.Drain(ctx, in.Name, in.Body.On); err != nil {
		return nil, kit.Problem(err, "path.name", in.Name)
	}
	if x, ok = s.Nodes().Item(in.Name); !ok {
		return nil, kit.Problem(kit.ErrUnknown, "path.name", in.Name)
	}
	return &kit.Body[NodeInfo]{Body: s.nodeInfo(x)}, nil
}

func (s *Service) nodeInfos(all []kit.Item[agents.AgentRecord]) []NodeInfo {
	out := make([]NodeInfo, len(all))
	for i, x := range all {
		out[i] = s.nodeInfo(x)
	}
	return out
}

// nodeInfo describes a node.
func (s *Service) nodeInfo(x kit.Item[agents.AgentRecord]) NodeInfo {
	i := NodeInfo{
		NodeSpec: NodeSpec{x.Name, x.Value.URL}, Origin: api.Origin(x.Configured), State: agents.Unknown, Draining: x.Value.Draining,
		Places: []PlaceInfo{},
	}
	a := s.nodes.registry.Get(x.Name)
	if a == nil {
		i.Standing = standingSilent.String()
		return i
	}
	st, t := a.State(), s.nodes.statusOf(x.Name)
	f := fitnessOf(&st, &t)
	i.State, i.Standing, i.Load, i.Error = st.Liveness, f.standing.String(), f.load, nodeapi.Text(cmp.Or(st.Error, t.problem), maxTextLen)
	i.Version, i.CPU, i.Memory = nodeapi.Text(st.Status.Version, maxTextLen), st.Status.CPU, st.Status.MemoryBytes
	if !st.LastSeen.IsZero() {
		i.LastSeen = &st.LastSeen
	}
	i.Kind, i.Storage, i.Compute, i.Cache = string(t.report.Kind()), t.report.Storage, t.report.Compute, t.report.Cache
	if !t.proven.IsZero() {
		i.GUID = t.proven.String()
		for _, at := range s.names.find(t.proven) {
			if slices.Contains(t.report.MACs, at.MAC) {
				i.Places = append(i.Places, placeInfo(at))
			}
		}
		slices.SortFunc(i.Places, func(a, b PlaceInfo) int { return strings.Compare(a.String(), b.String()) })
	}
	return i
}

// functions returns the functions that compute nodes run, sorted by name and node.
func (s *Service) functions() []FunctionInfo {
	all := []FunctionInfo{}
	for _, i := range s.nodeInfos(s.Nodes().Items()) {
		if i.Compute != nil {
			all = append(all, FunctionInfo{GUID: i.GUID, Node: i.Name, State: i.State, Standing: i.Standing, ComputeReport: *i.Compute})
		}
	}
	slices.SortFunc(all, func(a, b FunctionInfo) int { return strings.Compare(a.GUID+"/"+a.Node, b.GUID+"/"+b.Node) })
	return all
}
