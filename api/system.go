package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/internal/version"
)

const checkTimeout = 2 * time.Second

const description = `Moves data over OpenFlow networks.

Every request but those for health and this document is authenticated with a bearer token or a client certificate. What is refused is answered with a problem document (RFC 9457), also a path that is none (404), and a method that is none of the path's: 405, with those that are in the header Allow.

Bodies are JSON. What is not to be set is left out: null is refused. A list in an answer is never null.`

func (a *API) humaConfig() huma.Config {
	c := huma.DefaultConfig("Sluice", a.opts.Version)
	c.Info.Description = description
	c.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	// This package serves these paths itself: without a data race, and without a CDN.
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", ""
	c.CreateHooks = nil
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	c.RejectUnknownQueryParameters = true
	c.OnAddOperation = append(c.OnAddOperation, func(_ *huma.OpenAPI, op *huma.Operation) { op.MaxBodyBytes = a.opts.MaxBody }, a.describeRefusals, a.describeFormats)
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":       {Type: "http", Scheme: "bearer", Description: "The token in the controller's token file"},
		"certificate": {Type: "mutualTLS", Description: "A client certificate issued by the configured authority"},
	}
	c.Security = []map[string][]string{{"token": {}}, {"certificate": {}}}
	return c
}

// registerSystem adds the paths that every controller serves: health, metrics, the OpenAPI document
// with its viewer, the event stream, and the version.
func (a *API) registerSystem() {
	a.registerMetrics()
	a.HandlePublic("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
	a.HandlePublic("GET /readyz", http.HandlerFunc(a.ready))
	a.HandlePublic("GET /openapi.json", document("application/openapi+json", a.huma.OpenAPI().MarshalJSON))
	a.HandlePublic("GET /openapi.yaml", document("application/openapi+yaml", a.huma.OpenAPI().YAML))
	a.registerViewer()
	a.registerEvents()
	a.registerVersion()
}

func document(contentType string, render func() ([]byte, error)) http.Handler {
	once := sync.OnceValues(render)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b, err := once()
		if err != nil {
			WriteProblem(w, &huma.ErrorModel{Status: http.StatusInternalServerError, Detail: err.Error()})
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(b) // the client is gone if this fails
	})
}

// ready answers 200 if every check passes, otherwise 503 with the names of the checks that
// failed. The reasons are only logged, because this path is public. In an answer of 200, the remarks
// (AddRemark) follow the first line.
func (a *API) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	var failed []*huma.ErrorDetail
	for _, c := range a.checks {
		if err := c.Run(ctx); err != nil {
			a.unready.Warn(a.opts.Log, "not ready", "check", c.Name, "error", err)
			failed = append(failed, &huma.ErrorDetail{Location: c.Name, Message: "not ready, see the controller's log"})
		}
	}
	if len(failed) > 0 {
		WriteProblem(w, &huma.ErrorModel{Status: http.StatusServiceUnavailable, Detail: "the controller is not ready", Errors: failed})
		return
	}
	fmt.Fprintln(w, "ready")
	for _, remark := range a.remarks {
		if text := remark(); text != "" {
			fmt.Fprintln(w, text)
		}
	}
}

type versionOutput struct{ Body version.Info }

func (a *API) registerVersion() {
	huma.Get(a.huma, Prefix+"/version", func(context.Context, *struct{}) (*versionOutput, error) {
		return &versionOutput{version.Get()}, nil
	}, func(o *huma.Operation) {
		o.OperationID, o.Summary, o.Tags = "version", "Which build this is", []string{"system"}
	})
}
