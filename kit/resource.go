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

// Resource serves a collection by REST. S is one of its items as a request says it, I as
// answers show it.
type Resource[T, S, I any] struct {
	*Collection[T]
	// Path is its path below that of the service, like "critical".
	Path string
	// Field is where the name stands in a request, like "name"; empty if items are given one.
	Field string
	// Parse checks a request, or returns Faults. path is the name in the path, empty for a
	// new item.
	Parse func(path string, s S) (name string, v T, err error)
	// Show is what answers show of items.
	Show func([]Item[T]) []I
	// Admit brings a new item about and has it declared, or says why not; nil: Add.
	Admit func(ctx context.Context, name string, v T) error
	// ByPath says that the path alone names an item: PUT adds what is not there, and there
	// is no POST.
	ByPath bool
	// Undeclared removes what is there and nobody has declared; nil: there is nothing like that.
	Undeclared func(ctx context.Context, name string) error

	service string
}

// Register adds the operations: items, by pages or all, and one are shown, and one is added,
// replaced and removed. An answer that shows one has an entity tag; a change with If-Match is made
// if the tag is still that (RFC 9110, 13.1.1).
func (r *Resource[T, S, I]) Register(to REST) {
	Register(to, http.MethodGet, r.Path, "List the "+r.Nouns, r.list)
	Register(to, http.MethodGet, r.Path+"/{name}", "Show "+r.a(), r.get)
	r.RegisterChanges(to)
}

// RegisterChanges is Register of what changes something alone, for a service that shows
// more than what was declared.
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

// a is the noun with its article.
func (r *Resource[T, S, I]) a() string {
	if strings.ContainsRune("aeiou", rune(r.Noun[0])) {
		return "an " + r.Noun
	}
	return "a " + r.Noun
}

// Shown is an answer that shows one item.
type Shown[I any] struct {
	ETag string `header:"ETag" doc:"Entity tag, for If-Match of a change"`
	Body I
}

// Match is the condition of a change.
type Match struct {
	IfMatch string `header:"If-Match" doc:"Entity tag that is expected: the change is refused if somebody has made another since; left out or *: none"`
}

// putting is a request to replace an item, deleting one to remove it.
type putting[S any] struct {
	ByName
	Match
	Body S
}

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
		return nil, Problem(r.about(in.Name, ErrUnknown), inPath, in.Name)
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

// Tag is a revision as an entity tag.
func Tag(revision int64) string { return strconv.Quote(strconv.FormatInt(revision, 10)) }

// revision is what is expected, zero for any. A tag that was never given is none that is
// there.
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

// problem is Problem, but for a condition that does not hold, and for what the
// configuration has.
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
