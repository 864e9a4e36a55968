package plugin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Register adds the service's operations and metrics to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	h := a.Huma()
	register(h, http.MethodGet, "config", "Show the configuration", s.getConfig)
	register(h, http.MethodPatch, "config", "Change the configuration: what is left out stays", s.patchConfig)
	register(h, http.MethodPost, "enable", "Take new connections", s.postEnable(true))
	register(h, http.MethodPost, "disable", "Take no new connections; sessions under way go on", s.postEnable(false))
	register(h, http.MethodGet, "status", "Show state and errors", s.getStatus)

	register(h, http.MethodGet, "whitelist", "List the whitelist", s.getWhitelist)
	register(h, http.MethodPost, "whitelist", "Add a whitelist entry", s.postWhitelist)
	register(h, http.MethodDelete, "whitelist/{id}", "Remove a whitelist entry; its sessions go on", s.deleteWhitelist)

	register(h, http.MethodGet, "agents", "List the agents", s.getAgents)
	register(h, http.MethodPost, "agents", "Add an agent", s.postAgent)
	register(h, http.MethodPost, "agents/"+announcePath, "Announce oneself as an agent", s.postAnnounce)
	register(h, http.MethodDelete, "agents/{name}", "Remove an agent", s.deleteAgent)
	register(h, http.MethodPost, "agents/{name}/drain", "Let an agent take no new sessions, or take them again", s.postDrain)

	register(h, http.MethodGet, "sessions", "List live and past sessions", s.getSessions)
	register(h, http.MethodGet, "sessions/{id}", "Show a session and its course", s.getSession)
	register(h, http.MethodDelete, "sessions/{id}", "End a session with a reset to both ends", s.deleteSession)
	register(h, http.MethodGet, "stats", "Show totals, live and past sessions", s.getStats)
}

// register adds one operation below /api/v1/sos. Its identifier follows from
// method and path.
func register[I, O any](h huma.API, method, path, summary string, f func(context.Context, *I) (*O, error)) {
	op := huma.Operation{
		OperationID: operationID(method, path), Method: method, Path: api.Prefix + "/" + Name + "/" + path,
		Summary: summary, Tags: []string{Name},
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity},
	}
	huma.Register(h, op, f)
}

func operationID(method, path string) string {
	id := Name + "-"
	for _, c := range path {
		switch c {
		case '/':
			id += "-"
		case '{', '}':
		default:
			id += string(c)
		}
	}
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "post", http.MethodPatch: "patch", http.MethodDelete: "delete"}[method]
	return id + "-" + verb
}

// body wraps what an operation answers.
type body[T any] struct{ Body T }

// refuse turns faults into a problem document, or nil.
func refuse(faults []Fault) error {
	fields := make([]api.Field, len(faults))
	for i, f := range faults {
		fields[i] = api.Field{Location: "body." + f.Field, Value: f.Value, Want: f.Want}
	}
	return api.InvalidFields(fields)
}

// answer turns an error of a change into a problem document. location and value
// name what the change was about.
func answer(err error, location string, value any) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errUnknown):
		return api.NotFound(location, value, "nothing of that name is there; list them to see what is")
	case errors.Is(err, errExists), errors.Is(err, errTooMany):
		return api.Conflict(location, value, err.Error())
	default:
		return api.Unavailable("nothing was changed: %v", err)
	}
}

type nothing struct{}

func (s *Service) getConfig(context.Context, *nothing) (*body[Config], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &body[Config]{s.config}, nil
}

func (s *Service) patchConfig(ctx context.Context, in *body[ConfigChange]) (*body[Config], error) {
	cfg, faults, err := s.setConfig(ctx, in.Body)
	if len(faults) > 0 {
		return nil, refuse(faults)
	}
	return &body[Config]{cfg}, answer(err, "body", nil)
}

func (s *Service) postEnable(on bool) func(context.Context, *nothing) (*body[Status], error) {
	return func(ctx context.Context, _ *nothing) (*body[Status], error) {
		if _, _, err := s.setConfig(ctx, ConfigChange{Enabled: &on}); err != nil {
			return nil, answer(err, "body.enabled", on)
		}
		return s.getStatus(ctx, nil)
	}
}

// EntryInfo is a whitelist entry as the list shows it.
type EntryInfo struct {
	Entry
	Notes []string `json:"notes,omitempty" doc:"Which of its connections are not carried though nothing is wrong: those of which another service has the packets"`
}

func (s *Service) getWhitelist(context.Context, *nothing) (*body[[]EntryInfo], error) {
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
	return &body[[]EntryInfo]{out}, nil
}

func (s *Service) postWhitelist(ctx context.Context, in *body[EntrySpec]) (*body[Entry], error) {
	e, faults := in.Body.Parse()
	if len(faults) == 0 {
		faults = e.over(time.Now())
	}
	if len(faults) > 0 {
		return nil, refuse(faults)
	}
	e, err := s.addEntry(ctx, e)
	return &body[Entry]{e}, answer(err, "body", nil)
}

type byID struct {
	ID string `path:"id" doc:"Identifier, as the list shows it"`
}

func (s *Service) deleteWhitelist(ctx context.Context, in *byID) (*nothing, error) {
	return nil, answer(s.removeEntry(ctx, in.ID), "path.id", in.ID)
}
