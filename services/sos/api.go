package sos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// Register adds the service's operations and metrics to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := kit.NewREST(a, Name)
	kit.Show(r, "config", "Show the configuration", s.settings)
	kit.Register(r, http.MethodPatch, "config", "Change the configuration: what is left out stays", s.selection.patchConfig)
	kit.Register(r, http.MethodPost, "enable", "Take new connections", s.postEnable(true))
	kit.Register(r, http.MethodPost, "disable", "Take no new connections; running sessions continue", s.postEnable(false))
	kit.Show(r, "status", "Show state and errors", s.status)

	whitelist := kit.Resource[Entry, EntrySpec, EntryInfo]{Collection: s.selection.entries, Path: "whitelist", Parse: s.selection.parseEntry, Show: s.selection.showEntries}
	whitelist.Register(r)

	s.agents.Register(a, r)
	kit.Register(r, http.MethodGet, "agents/{name}/paths", "Ask an agent what it knows about its paths, and list that", s.getPaths)

	kit.Register(r, http.MethodGet, "sessions", "List live and past sessions", s.getSessions)
	kit.Register(r, http.MethodGet, "sessions/{id}", "Show a session and its course", s.getSession)
	kit.Register(r, http.MethodDelete, "sessions/{id}", "End a session with a reset to both ends", s.deleteSession)
	kit.Show(r, "stats", "Show totals, live and past sessions", s.stats)
}

func (s *selection) patchConfig(ctx context.Context, in *kit.Body[ConfigChange]) (*kit.Body[Config], error) {
	cfg, err := s.setConfig(ctx, in.Body)
	return &kit.Body[Config]{Body: cfg}, kit.Problem(err, "body", nil)
}

func (s *Service) postEnable(on bool) func(context.Context, *kit.Nothing) (*kit.Body[Status], error) {
	return func(ctx context.Context, _ *kit.Nothing) (*kit.Body[Status], error) {
		_, err := s.selection.setConfig(ctx, ConfigChange{Enabled: &on})
		return &kit.Body[Status]{Body: s.status()}, kit.Problem(err, "body.enabled", on)
	}
}

// Needed returns the data addresses of the agents, for examinations of the network.
func (s *Service) Needed() []diagnosis.Needed { return s.agents.Needed("SOS") }

type byID struct {
	ID string `path:"id" doc:"Identifier, as the list shows it"`
}

// pathsTimeout bounds how long an agent may take to list its paths.
const pathsTimeout = 5 * time.Second

// PathInfo is an agent's knowledge about one of its paths, as the API shows it.
type PathInfo struct {
	Peer      string           `json:"peer" doc:"Address of the other agent"`
	Port      uint16           `json:"port" doc:"Data port of the side that accepts connections"`
	Rate      uint64           `json:"bits_per_second" doc:"What the path carries, in bits of payload a second; 0: not known"`
	Source    string           `json:"source,omitempty" doc:"How the rate was learned: measured, declared by the controller, or from the agent's file"`
	Doubtful  bool             `json:"doubtful" doc:"It has not shown its rate for a while, or it was lowered beside other traffic: it is tried at half"`
	Seen      time.Time        `json:"seen,omitzero" doc:"When it last showed its rate"`
	RTT       control.Duration `json:"rtt" doc:"Round trip without a queue; 0s: not known"`
	Loss      float64          `json:"loss" doc:"Share of the bytes that were retransmitted lately"`
	Queue     control.Duration `json:"queue" doc:"How much longer the round trip was at the last update"`
	Pace      uint64           `json:"pace_bits_per_second" doc:"What all sessions together may send, in bits of payload a second; 0 while none sends"`
	Delivered uint64           `json:"delivered_bits_per_second" doc:"What is delivered now, in bits of payload a second"`
	Limit     uint64           `json:"limit_bits_per_second" doc:"What the controller lets the agent send beside other agents on the same links, in bits of payload a second; 0: no limit"`
	Sessions  int              `json:"sessions" doc:"Sessions that have more to send than they may"`
	Phase     string           `json:"phase" doc:"What the agent does: find, try, hold, grow or drain"`
}

type byName struct {
	Name string `path:"name" doc:"Name of the agent"`
}

// getPaths asks an agent for its paths.
func (s *Service) getPaths(ctx context.Context, in *byName) (*kit.Body[[]PathInfo], error) {
	a := s.agents.Get(in.Name)
	if a == nil {
		return nil, kit.Problem(fmt.Errorf("agent %q: %w", in.Name, kit.ErrUnknown), "path.name", in.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, pathsTimeout)
	defer cancel()
	list, err := a.Client.Paths(ctx)
	if err != nil {
		return nil, api.Unavailable("agent %s does not list its paths: %v", in.Name, err)
	}
	out := make([]PathInfo, len(list))
	for i, p := range list {
		out[i] = PathInfo{
			Peer: p.Peer.String(), Port: p.Port, Rate: p.Rate, Source: string(p.Source), Doubtful: p.Doubtful, Seen: p.Seen,
			RTT: p.RTT, Loss: p.Loss, Queue: p.Queue, Pace: p.Pace, Delivered: p.Delivered, Limit: p.Limit, Sessions: p.Sessions, Phase: p.Phase,
		}
	}
	return &kit.Body[[]PathInfo]{Body: out}, nil
}

// Status is the state of the service.
type Status struct {
	Enabled   bool     `json:"enabled"`
	Ready     bool     `json:"ready" doc:"The start is over: sessions of an earlier controller have been taken over"`
	Entries   int      `json:"whitelist_entries"`
	Active    int      `json:"whitelist_active" doc:"Entries that are active now"`
	Agents    int      `json:"agents"`
	AgentsUp  int      `json:"agents_up"`
	Setups    int      `json:"setups" doc:"Sessions being set up"`
	Sessions  int      `json:"sessions" doc:"Sessions, those being set up or ending included"`
	TakenOver takeover `json:"taken_over"`
	Errors    []string `json:"errors" doc:"What does not work now: each with its cause and what would help"`
	Direct    []Direct `json:"direct" doc:"Why whitelisted connections went directly, the most frequent reason first"`
}

func (s *Service) status() Status {
	errs := s.Errors()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	st := Status{
		Enabled: s.config.Enabled, Ready: s.running, Entries: len(s.selection.whitelist), Agents: len(s.agents.List()),
		Setups: s.sessions.setups, Sessions: len(s.sessions.byFlow), TakenOver: s.takeoverResult, Errors: errs, Direct: s.sessions.directs.list(),
	}
	for i := range s.selection.whitelist {
		if s.selection.whitelist[i].Active(now) {
			st.Active++
		}
	}
	for _, a := range s.agents.List() {
		if a.State().Liveness == agents.Up {
			st.AgentsUp++
		}
	}
	return st
}

type sessionsInput struct {
	State string `query:"state" enum:"live,past,all" default:"all" doc:"Which sessions"`
	Limit int    `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"At most so many, the latest first"`
}

func (s *Service) getSessions(_ context.Context, in *sessionsInput) (*kit.Body[[]Record], error) {
	list := s.records(in.State)
	return &kit.Body[[]Record]{Body: list[:min(len(list), in.Limit)]}, nil
}

// records returns session records without their samples, the latest first. which is "live", "past"
// or "all".
func (s *Service) records(which string) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Record{}
	if which != "past" {
		for _, ss := range s.sessions.byFlow {
			list = append(list, ss.record())
		}
	}
	if which != "live" {
		list = append(list, s.history.records...)
	}
	for i := range list {
		list[i].Samples = nil
	}
	slices.SortFunc(list, func(a, b Record) int { return b.Started.Compare(a.Started) })
	return list
}

func (s *Service) getSession(_ context.Context, in *byID) (*kit.Body[Record], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, err := agentapi.ParseSessionID(in.ID); err == nil && s.sessions.byID[id] != nil {
		return &kit.Body[Record]{Body: s.sessions.byID[id].record()}, nil
	}
	i := slices.IndexFunc(s.history.records, func(r Record) bool { return r.ID == in.ID })
	if i < 0 {
		return nil, kit.Problem(kit.ErrUnknown, "path.id", in.ID)
	}
	return &kit.Body[Record]{Body: s.history.records[i]}, nil
}

func (s *Service) deleteSession(_ context.Context, in *byID) (*kit.Nothing, error) {
	id, err := agentapi.ParseSessionID(in.ID)
	s.mu.Lock()
	ss := s.sessions.byID[id]
	live := ss != nil && ss.state == StateLive
	s.mu.Unlock()
	if err != nil || !live {
		return nil, kit.Problem(kit.ErrUnknown, "path.id", in.ID)
	}
	s.abort(ss.id, ss.client, ss.server)
	s.endings.windUp(ss)
	return nil, nil
}

// Stats holds the service's totals together with the sessions that it lists.
type Stats struct {
	Live     []Record          `json:"live"`
	Past     []Record          `json:"past"`
	Bytes    uint64            `json:"bytes" doc:"Carried by the sessions listed, both directions"`
	Totals   Totals            `json:"totals" doc:"Since the first start of the service"`
	SetupP50 agentapi.Duration `json:"setup_p50" doc:"Median set-up time of the sessions listed"`
	SetupP99 agentapi.Duration `json:"setup_p99"`
}

func (s *Service) stats() Stats {
	s.mu.Lock()
	totals := s.history.totals
	s.mu.Unlock()
	st := Stats{Live: s.records("live"), Past: s.records("past"), Totals: totals}
	var setups []agentapi.Duration
	for _, r := range slices.Concat(st.Live, st.Past) {
		st.Bytes += r.BytesUp + r.BytesDown
		if r.Setup.Total > 0 {
			setups = append(setups, r.Setup.Total)
		}
	}
	if len(setups) > 0 {
		slices.Sort(setups)
		st.SetupP50, st.SetupP99 = setups[len(setups)/2], setups[len(setups)*99/100]
	}
	return st
}
