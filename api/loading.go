package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Await has requests that read what is below /api/v1/<name>/ answered with 503 until
// loaded is closed, and /readyz say so: a service that has not read its store yet knows
// of nothing, which is not the same as that there is nothing. Call it before Run.
func (a *API) Await(name string, loaded <-chan struct{}) {
	a.awaited[Prefix+"/"+name+"/"] = loaded
	a.AddCheck(Check{Name: name, Run: func(context.Context) error {
		if !closed(loaded) {
			return errNotLoaded
		}
		return nil
	}})
}

var errNotLoaded = errors.New("the service has not read the store yet")

// untilLoaded refuses to read from services that have not loaded.
func (a *API) untilLoaded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for prefix, loaded := range a.awaited {
			reads := r.Method == http.MethodGet || r.Method == http.MethodHead
			if reads && strings.HasPrefix(r.URL.Path, prefix) && !closed(loaded) {
				w.Header().Set("Retry-After", "1")
				WriteProblem(w, &huma.ErrorModel{Status: http.StatusServiceUnavailable, Detail: errNotLoaded.Error() + ": ask again in a moment"})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
