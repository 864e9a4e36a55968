package sos

import (
	"context"
	"net/http"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network/diagnosis"
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
