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
	api           huma.API
	name          string
	loaded, ended <-chan struct{}
}

// NewREST returns a REST for the service of a name, or for a part of a service, like
// "cinema/ingress".
func NewREST(a *api.API, name string) REST { return REST{api: a.Huma(), name: name} }

// AwaitChanges returns a REST whose changing operations wait until loaded is closed: an item that is
// added before the service has read its store could exist twice. ended is closed when the service
// has ended. A Collection waits by itself.
func (r REST) AwaitChanges(loaded, ended <-chan struct{}) REST {
	r.loaded, r.ended = loaded, ended
	return r
}

func (r REST) await(ctx huma.Context, next func(huma.Context)) {
	select {
	case <-r.loaded:
		next(ctx)
	case <-r.ended:
		_ = huma.WriteErr(r.api, ctx, http.StatusServiceUnavailable, "the service has ended")
	case <-ctx.Context().Done(): // the client has gone
	}
}

// Body is an input or an answer that consists of a document.
type Body[T any] struct{ Body T }

// Nothing is an input or an answer without a body.
type Nothing struct{}

// ByName is the path of an operation on one item.
type ByName struct {
	Name string `path:"name" doc:"Its name"`
}

// errorStatuses lists the statuses with which an operation of a service may fail, beside those of
// all operations.
var errorStatuses = []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable}

// Register adds an operation; see Operation.
func Register[I, O any](r REST, method, path, summary string, f func(context.Context, *I) (*O, error), more ...int) {
	huma.Register(r.api, r.Operation(method, path, summary, more...), f)
}

// Show adds a GET operation that returns a document.
func Show[T any](r REST, path, summary string, read func() T) {
	Register(r, http.MethodGet, path, summary, func(context.Context, *Nothing) (*Body[T], error) {
		return &Body[T]{read()}, nil
	})
}

// Create adds a POST operation that answers 201.
func Create[I, O any](r REST, path, summary string, f func(context.Context, *I) (*O, error), more ...int) {
	op := r.Operation(http.MethodPost, path, summary, more...)
	op.DefaultStatus = http.StatusCreated
	huma.Register(r.api, op, f)
}

// Operation describes an operation. Its identifier is made from the method and the path. The
// operation may fail with the statuses in more beside 404, 409, 422 and 503.
func (r REST) Operation(method, path, summary string, more ...int) huma.Operation {
	var before huma.Middlewares
	if r.loaded != nil && method != http.MethodGet {
		before = huma.Middlewares{r.await}
	}
	words := strings.NewReplacer("/", "-", "{", "", "}", "").Replace(r.name + "/" + path)
	tag, _, _ := strings.Cut(r.name, "/")
	return huma.Operation{
		OperationID: words + "-" + strings.ToLower(method), Method: method, Path: api.Prefix + "/" + r.name + "/" + path,
		Summary: summary, Tags: []string{tag}, Errors: append(more, errorStatuses...), Middlewares: before,
	}
}

// inPath is the location, in problem documents, of the name in a request's path.
const inPath = "path.name"

// Refuse returns a problem document with the faults of a request's body, or nil without faults.
func Refuse(faults Faults) error {
	fields := make([]api.Field, len(faults))
	for i, f := range faults {
		fields[i] = api.Field{Location: "body." + f.Field, Value: f.Value, Want: f.Want}
		if text, ok := f.Value.(fmt.Stringer); ok {
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

// Problem returns a problem document for the error of a change. location and value say which item
// was to be changed, like "path.name" and its name.
func Problem(err error, location string, value any) error {
	refused := func(e error) bool { return errors.Is(err, e) }
	if _, ok := errors.AsType[huma.StatusError](err); ok {
		return err // already a problem document
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
