package plugin

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/sos/agentapi"
)

var agentName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// announcePath is where agents announce themselves, beside the agents' names.
const announcePath = "announce"

// AgentSpec is an agent as an operator adds it, or as it announces itself.
type AgentSpec struct {
	Name        string   `json:"name" example:"agent-1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$" patternDescription:"1 to 63 lower-case letters, digits, dots and dashes" doc:"Lower-case letters, digits, dots and dashes"`
	URL         string   `json:"url" pattern:"^https?://(?:\\[[0-9A-Fa-f:.]+\\]|[0-9A-Za-z.-]+):[0-9]{1,5}/?$" patternDescription:"a URL like https://192.0.2.7:8440" example:"https://192.0.2.7:8440" doc:"Where its control API listens"`
	Addrs       []string `json:"addrs" format:"ip-address" minItems:"1" maxItems:"2" example:"[\"10.0.0.11\"]" doc:"Its data addresses, at most one of each family"`
	MaxSessions int      `json:"max_sessions,omitempty" minimum:"0" maximum:"1000000" doc:"Bound of its sessions; 0: it decides"`
}

// Parse turns the specification into a record, or says everything that is wrong.
func (a AgentSpec) Parse() (AgentRecord, service.Faults) {
	r := AgentRecord{Name: a.Name, URL: strings.TrimSuffix(a.URL, "/"), MaxSessions: a.MaxSessions}
	var faults service.Faults
	if !agentName.MatchString(a.Name) {
		faults.Add("name", a.Name, "1 to 63 lower-case letters, digits, dots and dashes")
	}
	if a.Name == announcePath {
		faults.Add("name", a.Name, "another name: this one is a path of the API, so the agent could not be removed")
	}
	u, err := url.Parse(a.URL)
	if err != nil || u.Host == "" || u.Port() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		faults.Add("url", a.URL, "a URL like https://192.0.2.7:8440")
	} else if u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		faults.Add("url", a.URL, "https; http is for an agent on the loopback interface")
	}
	if len(a.Addrs) == 0 || len(a.Addrs) > 2 {
		faults.Add("addrs", a.Addrs, "one or two data addresses")
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
	if a.MaxSessions < 0 || a.MaxSessions > 1_000_000 {
		faults.Add("max_sessions", a.MaxSessions, "0 to 1000000")
	}
	return r, faults
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// AgentInfo is an agent as the API shows it.
type AgentInfo struct {
	AgentRecord
	State        Liveness          `json:"state" doc:"unknown, up or silent"`
	Error        string            `json:"error,omitempty"`
	LastSeen     *time.Time        `json:"last_seen,omitempty"`
	Sessions     int               `json:"sessions" doc:"Sessions that this controller has given it, those being set up included"`
	Places       map[string]string `json:"places" doc:"Where its addresses are in the network: switch/port"`
	Load         agentapi.Load     `json:"load"`
	Version      string            `json:"version,omitempty"`
	Congestion   []string          `json:"congestion_controls,omitempty"`
	Transports   []string          `json:"transports,omitempty"`
	Warnings     []string          `json:"warnings,omitempty" doc:"What keeps the agent below its best, and the remedy"`
	DataPorts    []uint16          `json:"data_ports,omitempty"`
	SessionLimit int               `json:"session_limit" doc:"How many sessions it takes; 0: not known yet"`
}

// info describes the agent. The lock is held.
func (a *agent) info() AgentInfo {
	i := AgentInfo{
		AgentRecord: a.record, State: a.liveness, Error: a.err, Sessions: a.sessions, Places: map[string]string{},
		Load: a.status.Load, Version: a.status.Version, Congestion: a.status.CongestionControls,
		Transports: a.status.Transports, Warnings: a.status.Warnings, DataPorts: a.status.DataPorts, SessionLimit: a.limit(),
	}
	if i.Error == "" {
		i.Error = a.mismatch()
	}
	if !a.lastSeen.IsZero() {
		seen := a.lastSeen
		i.LastSeen = &seen
	}
	for addr, p := range a.places {
		i.Places[addr.String()] = p.at.String()
	}
	return i
}

func (s *Service) agentInfos() []AgentInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]AgentInfo, 0, len(s.agents))
	for _, a := range s.agents {
		list = append(list, a.info())
	}
	slices.SortFunc(list, func(a, b AgentInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Needed lists the data addresses of agents, for examinations of the network.
func (s *Service) Needed() (out []diagnosis.Needed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.agents {
		for _, addr := range a.record.Addrs {
			out = append(out, diagnosis.Needed{Addr: addr, Who: "agent " + a.record.Name + " of SOS"})
		}
	}
	return out
}

func (s *Service) getAgents(context.Context, *service.Nothing) (*service.Body[[]AgentInfo], error) {
	return &service.Body[[]AgentInfo]{Body: s.agentInfos()}, nil
}

func (s *Service) postAgent(ctx context.Context, in *service.Body[AgentSpec]) (*service.Body[AgentInfo], error) {
	return s.newAgent(ctx, in.Body, false)
}

func (s *Service) newAgent(ctx context.Context, spec AgentSpec, announced bool) (*service.Body[AgentInfo], error) {
	r, faults := spec.Parse()
	if len(faults) > 0 {
		return nil, service.Refuse(faults)
	}
	if faults := s.strangeAddrs(ctx, r); len(faults) > 0 {
		return nil, service.Refuse(faults)
	}
	r.Announced = announced
	if err := s.addAgent(ctx, r); err != nil {
		return nil, service.Problem(err, "body.name", spec.Name)
	}
	return s.showAgent(r.Name)
}

// askNew bounds the question to an agent that is being added.
const askNew = time.Second

// strangeAddrs asks an agent that is being added for its data addresses, and says
// which of those that it is added with it does not have. One that does not answer
// is added all the same: it may not have been started yet.
func (s *Service) strangeAddrs(ctx context.Context, r AgentRecord) service.Faults {
	client, err := s.dial(r)
	if err != nil {
		return nil // follow says so
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, askNew)
	defer cancel()
	st, err := client.Status(ctx)
	if err != nil || len(st.Addrs) == 0 {
		return nil
	}
	var faults service.Faults
	for i, addr := range r.Addrs {
		if !slices.Contains(st.Addrs, addr) {
			faults.Add(fmt.Sprintf("addrs[%d]", i), addr.String(), "an address that the agent itself has: %v; it carries a second family with second_address in its configuration", st.Addrs)
		}
	}
	return faults
}

func (s *Service) showAgent(name string) (*service.Body[AgentInfo], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	if a == nil {
		return nil, service.Problem(service.ErrUnknown, "path.name", name)
	}
	return &service.Body[AgentInfo]{Body: a.info()}, nil
}

type byName struct {
	Name  string `path:"name" doc:"Name of the agent"`
	Force bool   `query:"force" doc:"Remove it although it carries sessions; they end with a reset"`
}

func (s *Service) deleteAgent(ctx context.Context, in *byName) (*service.Nothing, error) {
	return nil, service.Problem(s.removeAgent(ctx, in.Name, in.Force), "path.name", in.Name)
}

type drainInput struct {
	Name string `path:"name" doc:"Name of the agent"`
	Body agentapi.DrainRequest
}

func (s *Service) postDrain(ctx context.Context, in *drainInput) (*service.Body[AgentInfo], error) {
	if err := s.drainAgent(ctx, in.Name, in.Body.On); err != nil {
		return nil, service.Problem(err, "path.name", in.Name)
	}
	return s.showAgent(in.Name)
}
