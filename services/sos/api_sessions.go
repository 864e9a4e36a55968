package sos

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

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

// records returns sessions without their samples, the latest first.
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
