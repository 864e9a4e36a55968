package plugin

import (
	"context"
	"net/http"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network/diagnosis"
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

	whitelist := service.Resource[Entry, EntrySpec, EntryInfo]{Collection: s.entries, Path: "whitelist", Parse: s.parseEntry, Show: s.showEntries}
	whitelist.Register(r)

	s.agents.Register(a, r)

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

// Needed lists the data addresses of agents, for examinations of the network.
func (s *Service) Needed() []diagnosis.Needed { return s.agents.Needed("SOS") }

type byID struct {
	ID string `path:"id" doc:"Identifier, as the list shows it"`
}
