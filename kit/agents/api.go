package agents

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/pki"
)

// announcePath is the path below "agents/" at which agents announce themselves. No agent can have
// this name.
const announcePath = "announce"

// Parse converts a specification into a record. It returns the faults that the tags of the
// specification, which the API has checked, do not cover.
func Parse(a control.AgentSpec) (AgentRecord, kit.Faults) {
	r := AgentRecord{Name: a.Name, URL: strings.TrimSuffix(a.URL, "/"), MaxSessions: a.MaxSessions}
	var faults kit.Faults
	if a.Name == announcePath {
		faults.Add("name", a.Name, "another name: this one is a path of the API, so the agent could not be removed")
	}
	u, err := url.Parse(a.URL)
	if err != nil || u.Host == "" || u.Port() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		faults.Add("url", a.URL, "a URL like https://192.0.2.7:8440")
	} else if u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		faults.Add("url", a.URL, "https; http is for an agent on the loopback interface")
	}
	for i, text := range a.Addrs {
		addr, err := netip.ParseAddr(text)
		addr = addr.Unmap()
		switch {
		case err != nil, addr.Zone() != "", addr.IsMulticast(), addr.IsUnspecified(), addr.IsLoopback(), addr.IsLinkLocalUnicast():
			faults.Add(fmt.Sprintf("addrs[%d]", i), text, "a unicast address by which other agents reach it, like 10.0.0.11")
		case slices.ContainsFunc(r.Addrs, func(x netip.Addr) bool { return x.Is4() == addr.Is4() }):
			faults.Add(fmt.Sprintf("addrs[%d]", i), text, "at most one address of each family")
		default:
			r.Addrs = append(r.Addrs, addr)
		}
	}
	return r, faults
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// AgentInfo describes an agent in answers of the API.
type AgentInfo struct {
	AgentRecord
	State        Liveness          `json:"state" doc:"Whether the agent is alive: unknown, up or silent"`
	Error        string            `json:"error,omitempty"`
	LastSeen     *time.Time        `json:"last_seen,omitempty"`
	Sessions     int               `json:"sessions" doc:"Sessions that this controller has given to the agent, including those being set up"`
	Places       map[string]string `json:"places" doc:"Switch and port of each of its addresses, as switch/port"`
	Load         control.Load      `json:"load"`
	Version      string            `json:"version,omitempty"`
	Congestion   []string          `json:"congestion_controls,omitempty"`
	Transports   []string          `json:"transports,omitempty"`
	Warnings     []string          `json:"warnings,omitempty" doc:"Conditions that limit the agent's performance, and their remedies"`
	Drift        uint64            `json:"drift" doc:"Differences of what the agent has declared on its machine from its declarations, since its start. It has restored them unless deviations say why not"`
	Deviations   []drift.Count     `json:"deviations,omitempty" doc:"What drift counts, by thing"`
	DataPorts    []uint16          `json:"data_ports,omitempty"`
	SessionLimit int               `json:"session_limit" doc:"Number of sessions that the agent accepts; 0 if not known yet"`
}

// Infos describes the agents, sorted by name.
func (r *Registry[C, R, L]) Infos() []AgentInfo {
	list := []AgentInfo{}
	for _, a := range r.List() {
		list = append(list, a.info())
	}
	return list
}

func (a *Agent[C]) info() AgentInfo {
	s := a.State()
	i := AgentInfo{
		AgentRecord: s.AgentRecord, State: s.Liveness, Error: cmp.Or(s.Error, s.mismatch()), Sessions: s.Sessions, Places: map[string]string{},
		Load: s.Status.Load, Version: s.Status.Version, Congestion: s.Status.CongestionControls,
		Transports: s.Status.Transports, Warnings: s.Status.Warnings, Drift: drift.Total(s.Status.Drift), Deviations: s.Status.Drift, DataPorts: s.Status.DataPorts, SessionLimit: s.Limit(),
	}
	if !s.LastSeen.IsZero() {
		i.LastSeen = &s.LastSeen
	}
	for addr, p := range s.Places {
		i.Places[addr.String()] = p.At.String()
	}
	return i
}

// Register adds the operations on agents. A client with the role of an agent may announce itself.
func (r *Registry[C, R, L]) Register(a *api.API, to kit.REST) {
	a.Permit(pki.RoleAgent, http.MethodPost, api.Prefix+"/"+r.Service+"/agents/"+announcePath)
	x := rest[C, R, L]{r}
	kit.Show(to, "agents", "List the agents", r.Infos)
	kit.Create(to, "agents", "Add an agent", func(ctx context.Context, in *kit.Body[control.AgentSpec]) (*kit.Body[AgentInfo], error) {
		return x.add(ctx, in.Body, false)
	})
	kit.Register(to, http.MethodPost, "agents/"+announcePath, "Announce oneself as an agent", x.announce)
	kit.Register(to, http.MethodDelete, "agents/{name}", "Remove an agent", func(ctx context.Context, in *removing) (*kit.Nothing, error) {
		return nil, kit.Problem(r.Remove(ctx, in.Name, in.Force), "path.name", in.Name)
	})
	kit.Register(to, http.MethodPost, "agents/{name}/drain", "Let an agent take no new sessions, or take them again", func(ctx context.Context, in *draining) (*kit.Body[AgentInfo], error) {
		if err := r.Drain(ctx, in.Name, in.Body.On); err != nil {
			return nil, kit.Problem(err, "path.name", in.Name)
		}
		return x.show(in.Name)
	})
}

// rest answers requests about agents.
type rest[C Client[R, L], R, L any] struct{ *Registry[C, R, L] }

type removing struct {
	Name  string `path:"name" doc:"Name of the agent"`
	Force bool   `query:"force" doc:"Remove the agent even if it carries sessions, which then end with a reset"`
}

type draining struct {
	Name string `path:"name" doc:"Name of the agent"`
	Body control.DrainRequest
}

func (r rest[C, R, L]) show(name string) (*kit.Body[AgentInfo], error) {
	a := r.Get(name)
	if a == nil {
		return nil, kit.Problem(kit.ErrUnknown, "path.name", name)
	}
	return &kit.Body[AgentInfo]{Body: a.info()}, nil
}

func (r rest[C, R, L]) add(ctx context.Context, spec control.AgentSpec, announced bool) (*kit.Body[AgentInfo], error) {
	rec, faults := Parse(spec)
	if len(faults) == 0 {
		faults = r.checkAddresses(ctx, rec)
	}
	if len(faults) > 0 {
		return nil, kit.Refuse(faults)
	}
	rec.Announced = announced
	if err := r.Add(ctx, rec); err != nil {
		return nil, kit.Problem(err, "body.name", spec.Name)
	}
	return r.show(rec.Name)
}

// addressTimeout bounds the request to an agent that is being added.
const addressTimeout = time.Second

// checkAddresses asks an agent that is being added for its data addresses, and returns a fault for
// each address that it does not have. An agent that does not answer is added all the same, because
// it may not run yet.
func (r rest[C, R, L]) checkAddresses(ctx context.Context, rec AgentRecord) (faults kit.Faults) {
	client, err := r.Dial(rec)
	if err != nil {
		return nil // follow logs the error
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, addressTimeout)
	defer cancel()
	st, err := client.Status(ctx)
	if err != nil || len(st.Addrs) == 0 {
		return nil
	}
	for i, addr := range rec.Addrs {
		faults.Check(slices.Contains(st.Addrs, addr), fmt.Sprintf("addrs[%d]", i), addr.String(),
			"an address that the agent itself has: %v; it carries a second family with second_address in its configuration", st.Addrs)
	}
	return faults
}
