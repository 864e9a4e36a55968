package sos

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
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
	kit.Register(r, http.MethodGet, "paths", "Ask all agents that are up what they know about their paths, and list that", s.getAllPaths)

	kit.Show(r, "warm", "List the pairs of agents that have connections before their first session", s.warming.infos)

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
