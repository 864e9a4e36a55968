package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Await makes the API answer reading requests below /api/v1/<name>/ with 503 until loaded is closed,
// because a service that has not read the store yet must not answer that nothing exists. Until then,
// /readyz reports that the controller is not ready. Await must be called before Run.
func (a *API) Await(name string, loaded <-chan struct{}) {
	a.loading[Prefix+"/"+name+"/"] = loaded
	a.AddCheck(Check{Name: name, Run: func(context.Context) error {
		if !isClosed(loaded) {
			return errNotLoaded
		}
		return nil
	}})
}

var errNotLoaded = errors.New("the service has not read the store yet")

// refuseWhileLoading refuses requests that read from services which have not read the store yet.
func (a *API) refuseWhileLoading(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for prefix, loaded := range a.loading {
			reads := r.Method == http.MethodGet || r.Method == http.MethodHead
			if reads && strings.HasPrefix(r.URL.Path, prefix) && !isClosed(loaded) {
				w.Header().Set("Retry-After", "1")
				WriteProblem(w, &huma.ErrorModel{Status: http.StatusServiceUnavailable, Detail: errNotLoaded.Error() + ": ask again in a moment"})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
