package kit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Resource serves a collection by REST. S is the type of an item in requests, and I its type in
// answers.
type Resource[T, S, I any] struct {
	*Collection[T]
	// Path is the resource's path below that of the service, like "critical".
	Path string
	// Field is the field of a request that holds the name, like "name". It is empty if the service
	// chooses the names.
	Field string
	// Parse checks a request and returns the item's name and value, or Faults. path is the name in
	// the path, and empty for a new item.
	Parse func(path string, s S) (name string, v T, err error)
	// Show converts items to the form that answers show.
	Show func([]Item[T]) []I
	// Admit prepares and declares a new item. If it is nil, Add declares the item.
	Admit func(ctx context.Context, name string, v T) error
	// ByPath reports whether only the path names an item: PUT then adds missing items, and there
	// is no POST.
	ByPath bool
	// Undeclared, if not nil, removes what exists under the name without being declared as an item.
	Undeclared func(ctx context.Context, name string) error

	service string
}

// Register adds the operations that list items, by pages or all, and show, add, replace and remove
// one. An answer that shows one item has an entity tag. A change with If-Match is made only if the
// item still has that tag (RFC 9110, 13.1.1).
func (r *Resource[T, S, I]) Register(to REST) {
	Register(to, http.MethodGet, r.Path, "List the "+r.Plural, r.list)
	Register(to, http.MethodGet, r.Path+"/{name}", "Show "+r.a(), r.get)
	r.RegisterChanges(to)
}

// RegisterChanges adds only the operations that change items. A service calls it if it shows more
// than declared items.
func (r *Resource[T, S, I]) RegisterChanges(to REST) {
	r.service = to.name
	if r.Admit == nil {
		r.Admit = r.Add
	}
	one, put := r.Path+"/{name}", "Replace "+r.a()
	if r.ByPath {
		put = "Add " + r.a() + ", or replace it"
	} else {
		Create(to, r.Path, "Add "+r.a(), r.post)
	}
	Register(to, http.MethodPut, one, put, r.put, http.StatusPreconditionFailed)
	Register(to, http.MethodDelete, one, "Remove "+r.a(), r.delete, http.StatusPreconditionFailed)
}

// a returns the singular with its article.
func (r *Resource[T, S, I]) a() string {
	if strings.ContainsRune("aeiou", rune(r.Singular[0])) {
		return "an " + r.Singular
	}
	return "a " + r.Singular
}

// Shown is an answer that shows one item.
type Shown[I any] struct {
	ETag string `header:"ETag" doc:"Entity tag of the item, for If-Match in a change"`
	Body I
}

// Match is the condition of a change.
type Match struct {
	IfMatch string `header:"If-Match" doc:"Expected entity tag: the change is refused if the item has changed since. Without it, or with *, every state is accepted"`
}

// putting is a request to add or replace an item.
type putting[S any] struct {
	ByName
	Match
	Body S
}

// deleting is a request to remove an item.
type deleting struct {
	ByName
	Match
}

func (r *Resource[T, S, I]) list(_ context.Context, in *Cursor) (*Page[I], error) {
	items, next := After(r.Items(), func(x Item[T]) string { return x.Name }, *in)
	return &Page[I]{next, r.Show(items)}, nil
}

func (r *Resource[T, S, I]) get(_ context.Context, in *ByName) (*Shown[I], error) {
	x, ok := r.Item(in.Name)
	if !ok {
		return nil, Problem(r.annotate(in.Name, ErrUnknown), inPath, in.Name)
	}
	return &Shown[I]{Tag(x.Revision), r.Show([]Item[T]{x})[0]}, nil
}

func (r *Resource[T, S, I]) post(ctx context.Context, in *Body[S]) (*Shown[I], error) {
	name, v, err := r.Parse("", in.Body)
	if err == nil {
		err = r.Admit(ctx, name, v)
	}
	if err != nil {
		if r.Field == "" {
			return nil, Problem(err, "body", nil)
		}
		return nil, Problem(err, "body."+r.Field, name)
	}
	return r.get(ctx, &ByName{name})
}

func (r *Resource[T, S, I]) put(ctx context.Context, in *putting[S]) (*Shown[I], error) {
	name, v, err := r.Parse(in.Name, in.Body)
	if err == nil && name != in.Name {
		err = Faults{{r.Field, name, "the name in the path, " + in.Name}}
	}
	var revision int64
	if err == nil {
		revision, err = in.revision()
	}
	switch {
	case err != nil:
	case r.ByPath:
		err = r.Put(ctx, name, v, revision)
	default:
		err = r.Replace(ctx, name, v, revision)
	}
	if err != nil {
		return nil, r.problem(in.Match, err, in.Name)
	}
	return r.get(ctx, &in.ByName)
}

func (r *Resource[T, S, I]) delete(ctx context.Context, in *deleting) (*Nothing, error) {
	revision, err := in.revision()
	if err == nil {
		err = r.Remove(ctx, in.Name, revision)
	}
	if errors.Is(err, ErrUnknown) && r.Undeclared != nil {
		err = r.Undeclared(ctx, in.Name)
	}
	return nil, r.problem(in.Match, err, in.Name)
}

// Tag returns the entity tag of a revision.
func Tag(revision int64) string { return strconv.Quote(strconv.FormatInt(revision, 10)) }

// revision returns the expected revision, or zero if any is accepted. A tag that Tag cannot have
// returned matches no item, so it is ErrChanged.
func (m Match) revision() (int64, error) {
	if m.IfMatch == "" || m.IfMatch == "*" {
		return 0, nil
	}
	text, err := strconv.Unquote(m.IfMatch)
	n := int64(0)
	if err == nil {
		n, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("the entity tag %s: %w", m.IfMatch, ErrChanged)
	}
	return n, nil
}

// problem turns an error into an answer, as Problem does. It gives answers of its own if the
// If-Match condition does not hold, and if the item is declared in the configuration file.
func (r *Resource[T, S, I]) problem(m Match, err error, name string) error {
	if faults, wrong := errors.AsType[Faults](err); wrong && r.ByPath {
		faults = slices.Clone(faults)
		for i := range faults {
			if faults[i].Field == "name" {
				faults[i].Field = inPath
			}
		}
		return Refuse(faults)
	}
	switch {
	case m.IfMatch != "" && errors.Is(err, ErrChanged):
		return api.Outdated("header.If-Match", m.IfMatch, err.Error())
	case errors.Is(err, ErrConfigured):
		return api.Configured(inPath, name, r.service+"."+r.Path+"."+name)
	}
	return Problem(err, inPath, name)
}
