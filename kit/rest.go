package kit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
)

// REST registers the operations of one service, below /api/v1/<name>/.
type REST struct {
	api          huma.API
	name         string
	loaded, gone <-chan struct{}
}

// NewREST returns one for the service of that name, or for a part of it, like
// "cinema/ingress".
func NewREST(a *api.API, name string) REST { return REST{api: a.Huma(), name: name} }

// AwaitChanges returns one whose operations wait, but for those that only read, until
// loaded is closed: what came before the service has read its store would be there twice.
// gone is closed when the service has ended. What a Collection keeps needs no such care.
func (r REST) AwaitChanges(loaded, gone <-chan struct{}) REST {
	r.loaded, r.gone = loaded, gone
	return r
}

func (r REST) await(ctx huma.Context, next func(huma.Context)) {
	select {
	case <-r.loaded:
		next(ctx)
	case <-r.gone:
		_ = huma.WriteErr(r.api, ctx, http.StatusServiceUnavailable, "the service has ended")
	case <-ctx.Context().Done(): // nobody waits for an answer
	}
}

// Body is an input or an answer that is a document.
type Body[T any] struct{ Body T }

// Nothing is an input or an answer that is empty.
type Nothing struct{}

// ByName is the path of what is done to one thing.
type ByName struct {
	Name string `path:"name" doc:"Its name"`
}

// may are the statuses with which an operation of a service may fail, besides those of
// all.
var may = []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable}

// Register adds an operation; see Operation.
func Register[I, O any](r REST, method, path, summary string, f func(context.Context, *I) (*O, error), more ...int) {
	huma.Register(r.api, r.Operation(method, path, summary, more...), f)
}

// Show adds an operation that shows something.
func Show[T any](r REST, path, summary string, read func() T) {
	Register(r, http.MethodGet, path, summary, func(context.Context, *Nothing) (*Body[T], error) {
		return &Body[T]{read()}, nil
	})
}

// Create is Register of a POST that answers 201.
func Create[I, O any](r REST, path, summary string, f func(context.Context, *I) (*O, error), more ...int) {
	op := r.Operation(http.MethodPost, path, summary, more...)
	op.DefaultStatus = http.StatusCreated
	huma.Register(r.api, op, f)
}

// Operation describes one operation, whose identifier follows from method and path. more
// are statuses that it may fail with besides 404, 409, 422 and 503.
func (r REST) Operation(method, path, summary string, more ...int) huma.Operation {
	var before huma.Middlewares
	if r.loaded != nil && method != http.MethodGet {
		before = huma.Middlewares{r.await}
	}
	words := strings.NewReplacer("/", "-", "{", "", "}", "").Replace(r.name + "/" + path)
	tag, _, _ := strings.Cut(r.name, "/")
	return huma.Operation{
		OperationID: words + "-" + strings.ToLower(method), Method: method, Path: api.Prefix + "/" + r.name + "/" + path,
		Summary: summary, Tags: []string{tag}, Errors: append(more, may...), Middlewares: before,
	}
}

// inPath is the field of a name that stands in the path of a request.
const inPath = "path.name"

// Refuse makes a problem document of what is wrong with a request's body, or nil if that is
// nothing.
func Refuse(faults Faults) error {
	fields := make([]api.Field, len(faults))
	for i, f := range faults {
		fields[i] = api.Field{Location: "body." + f.Field, Value: f.Value, Want: f.Want}
		if text, is := f.Value.(fmt.Stringer); is {
			fields[i].Value = text.String()
		}
		switch {
		case strings.HasPrefix(f.Field, "["): // the body is a list
			fields[i].Location = "body" + f.Field
		case f.Field == inPath:
			fields[i].Location = inPath
		}
	}
	return api.InvalidFields(fields)
}

// Problem makes a problem document of an error of a change. location and value name what
// the change was about, like "path.name".
func Problem(err error, location string, value any) error {
	refused := func(e error) bool { return errors.Is(err, e) }
	if _, is := errors.AsType[huma.StatusError](err); is {
		return err // it is one already
	}
	switch faults, wrong := errors.AsType[Faults](err); {
	case err == nil:
		return nil
	case wrong:
		return Refuse(faults)
	case errors.Is(err, ErrUnknown):
		return api.NotFound(location, value, err.Error())
	case slices.ContainsFunc([]error{ErrExists, ErrConfigured, ErrFull, ErrInUse, ErrChanged}, refused):
		return api.Conflict(location, value, err.Error())
	}
	return api.Unavailable("nothing was changed: %v", err)
}
