package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// methods holds the methods of each documented path. The multiplexer alone would also accept the
// methods of a more general path: DELETE /agents/announce as a request for /agents/{name}.
type methods struct {
	paths  *http.ServeMux
	byPath map[string][]string // by path, sorted
}

func (a *API) methods() *methods {
	m := &methods{paths: http.NewServeMux(), byPath: map[string][]string{}}
	for path, item := range a.huma.OpenAPI().Paths {
		m.paths.Handle(path, http.NotFoundHandler())
		m.byPath[path] = methodsOf(item)
	}
	return m
}

func methodsOf(item *huma.PathItem) []string {
	var out []string
	for method, op := range map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodHead: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put,
		http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
	} {
		if op != nil {
			out = append(out, method)
		}
	}
	slices.Sort(out)
	return out
}

// allowed reports whether the request's path has the request's method, and returns the methods of the
// path. An undocumented path allows all methods, because its handler checks them.
func (m *methods) allowed(r *http.Request) (bool, []string) {
	_, path := m.paths.Handler(r)
	all, ok := m.byPath[path]
	return !ok || slices.Contains(all, r.Method), all
}

// dispatch returns the handler that passes requests to the multiplexer, and answers unknown
// paths and methods with problem documents instead of the multiplexer's plain text.
func (a *API) dispatch() http.Handler {
	methods := a.methods()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ok, all := methods.allowed(r); !ok {
			notAllowed(w, r, strings.Join(all, ", "))
			return
		}
		if _, pattern := a.mux.Handler(r); pattern != "" {
			a.mux.ServeHTTP(w, r)
			return
		}
		probe := &probeWriter{header: http.Header{}}
		a.mux.ServeHTTP(probe, r)
		if allow := probe.header.Get("Allow"); allow != "" {
			notAllowed(w, r, allow)
			return
		}
		WriteProblem(w, &huma.ErrorModel{
			Status: http.StatusNotFound,
			Detail: fmt.Sprintf("there is no %s: /docs lists what there is", r.URL.Path),
			Errors: []*huma.ErrorDetail{{Location: "path", Value: r.URL.Path, Message: "see /docs for what there is"}},
		})
	})
}

func notAllowed(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	WriteProblem(w, &huma.ErrorModel{
		Status: http.StatusMethodNotAllowed,
		Detail: fmt.Sprintf("%s is not possible on %s: use %s", r.Method, r.URL.Path, allow),
		Errors: []*huma.ErrorDetail{{Location: "method", Value: r.Method, Message: "use " + allow}},
	})
}

// probeWriter records the header of an answer and discards its body.
type probeWriter struct{ header http.Header }

func (p *probeWriter) Header() http.Header         { return p.header }
func (p *probeWriter) Write(b []byte) (int, error) { return len(b), nil }
func (p *probeWriter) WriteHeader(int)             {}
