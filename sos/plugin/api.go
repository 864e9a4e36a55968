package plugin

import (
	"context"
	"net/http"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
)

// Register adds the service's operations and metrics to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := service.NewREST(a, Name)
	service.Register(r, http.MethodGet, "config", "Show the configuration", s.getConfig)
	service.Register(r, http.MethodPatch, "config", "Change the configuration: what is left out stays", s.patchConfig)
	service.Register(r, http.MethodPost, "enable", "Take new connections", s.postEnable(true))
	service.Register(r, http.MethodPost, "disable", "Take no new connections; sessions under way go on", s.postEnable(false))
	service.Register(r, http.MethodGet, "status", "Show state and errors", s.getStatus)

	service.Register(r, http.MethodGet, "whitelist", "List the whitelist", s.getWhitelist)
	service.Register(r, http.MethodPost, "whitelist", "Add a whitelist entry", s.postWhitelist)
	service.Register(r, http.MethodDelete, "whitelist/{id}", "Remove a whitelist entry; its sessions go on", s.deleteWhitelist)

	service.Register(r, http.MethodGet, "agents", "List the agents", s.getAgents)
	service.Register(r, http.MethodPost, "agents", "Add an agent", s.postAgent)
	service.Register(r, http.MethodPost, "agents/"+announcePath, "Announce oneself as an agent", s.postAnnounce)
	service.Register(r, http.MethodDelete, "agents/{name}", "Remove an agent", s.deleteAgent)
	service.Register(r, http.MethodPost, "agents/{name}/drain", "Let an agent take no new sessions, or take them again", s.postDrain)

	service.Register(r, http.MethodGet, "sessions", "List live and past sessions", s.getSessions)
	service.Register(r, http.MethodGet, "sessions/{id}", "Show a session and its course", s.getSession)
	service.Register(r, http.MethodDelete, "sessions/{id}", "End a session with a reset to both ends", s.deleteSession)
	service.Register(r, http.MethodGet, "stats", "Show totals, live and past sessions", s.getStats)
}

func (s *Service) getConfig(context.Context, *service.Nothing) (*service.Body[Config], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &service.Body[Config]{Body: s.config}, nil
}

func (s *Service) patchConfig(ctx context.Context, in *service.Body[ConfigChange]) (*service.Body[Config], error) {
	cfg, faults, err := s.setConfig(ctx, in.Body)
	if len(faults) > 0 {
		return nil, service.Refuse(faults)
	}
	return &service.Body[Config]{Body: cfg}, service.Problem(err, "body", nil)
}

func (s *Service) postEnable(on bool) func(context.Context, *service.Nothing) (*service.Body[Status], error) {
	return func(ctx context.Context, _ *service.Nothing) (*service.Body[Status], error) {
		if _, _, err := s.setConfig(ctx, ConfigChange{Enabled: &on}); err != nil {
			return nil, service.Problem(err, "body.enabled", on)
		}
		return s.getStatus(ctx, nil)
	}
}

// EntryInfo is a whitelist entry as the list shows it.
type EntryInfo struct {
	Entry
	Notes []string `json:"notes,omitempty" doc:"Which of its connections are not carried though nothing is wrong: those of which another service has the packets"`
}

func (s *Service) getWhitelist(context.Context, *service.Nothing) (*service.Body[[]EntryInfo], error) {
	s.mu.Lock()
	out, matches := make([]EntryInfo, len(s.whitelist)), make([][]openflow.Match, len(s.whitelist))
	for i := range s.whitelist {
		out[i].Entry = s.whitelist[i]
		for _, p := range punts(&s.whitelist[i]) {
			if m, err := p.match(false); err == nil {
				matches[i] = append(matches[i], m)
			}
		}
	}
	s.mu.Unlock()
	for i, over := range s.rules.Overruled(rule.StageSelect, rule.SelectConnection, matches) {
		out[i].Notes = rule.Notes(over, "those are not carried")
	}
	return &service.Body[[]EntryInfo]{Body: out}, nil
}

func (s *Service) postWhitelist(ctx context.Context, in *service.Body[EntrySpec]) (*service.Body[Entry], error) {
	e, faults := in.Body.Parse()
	if len(faults) == 0 {
		faults = e.over(time.Now())
	}
	if len(faults) > 0 {
		return nil, service.Refuse(faults)
	}
	e, err := s.addEntry(ctx, e)
	return &service.Body[Entry]{Body: e}, service.Problem(err, "body", nil)
}

type byID struct {
	ID string `path:"id" doc:"Identifier, as the list shows it"`
}

func (s *Service) deleteWhitelist(ctx context.Context, in *byID) (*service.Nothing, error) {
	return nil, service.Problem(s.removeEntry(ctx, in.ID), "path.id", in.ID)
}
