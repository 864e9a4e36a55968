package lab

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/internal/strictyaml"
)

// decoder collects all problems of a document, and holds the line of every field for problems found
// later.
type decoder struct {
	file     string
	problems strictyaml.Problems
	lines    map[string]int
}

// value is a node of the document with its path.
type value struct {
	d    *decoder
	node *yaml.Node
	path string
}

func (v value) fail(format string, args ...any) {
	v.d.fail(v.node.Line, v.path, fmt.Sprintf(format, args...), "")
}

func (d *decoder) fail(line int, path, wrong, want string) {
	d.problems = append(d.problems, strictyaml.Problem{Source: d.file, Line: line, Key: path, Wrong: wrong, Want: want})
}

// each calls f for the entries of a mapping in their order.
func (v value) each(f func(key string, v value)) {
	if v.node.Kind != yaml.MappingNode {
		v.fail("expected a mapping of names to values, got %s", strictyaml.Show(v.node))
		return
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := v.node.Content[i]
		c := value{d: v.d, node: v.node.Content[i+1], path: strictyaml.Join(v.path, key.Value)}
		v.d.lines[c.path] = key.Line
		f(key.Value, c)
	}
}

// fields reads a mapping of known keys.
func (v value) fields(known map[string]func(value)) {
	v.each(func(key string, c value) {
		if read, ok := known[key]; ok {
			read(c)
			return
		}
		v.d.fail(v.d.lines[c.path], c.path, "unknown key", strictyaml.Suggest(key, slices.Sorted(maps.Keys(known))))
	})
}

// list calls f for the items of a sequence.
func (v value) list(f func(i int, v value)) {
	if v.node.Kind != yaml.SequenceNode {
		v.fail("expected a list, got %s", strictyaml.Show(v.node))
		return
	}
	for i, n := range v.node.Content {
		f(i, value{d: v.d, node: n, path: v.path + "[" + strconv.Itoa(i) + "]"})
	}
}

func (v value) isNull() bool { return strictyaml.IsNull(v.node) }

// text passes a scalar, as it is written, to set.
func (v value) text(set func(string) error) {
	if v.node.Kind != yaml.ScalarNode || v.isNull() {
		v.fail("expected a single value, got %s", strictyaml.Show(v.node))
		return
	}
	if err := set(v.node.Value); err != nil {
		v.fail("%v", err)
	}
}

// parseScalar reads a scalar with a parser.
func parseScalar[T any](v value, target *T, parse func(string) (T, error)) {
	v.text(func(s string) error {
		x, err := parse(s)
		if err == nil {
			*target = x
		}
		return err
	})
}

// parseList reads a list of scalars with a parser.
func parseList[T any](v value, target *[]T, parse func(string) (T, error)) {
	v.list(func(_ int, c value) {
		var x T
		parseScalar(c, &x, parse)
		*target = append(*target, x)
	})
}

func asString(s string) (string, error) { return s, nil }

func asBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is not true or false", s)
}

func asInt(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 1<<30 {
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	return n, nil
}

// lineOf returns the line of a field, or of the nearest field around it.
func (d *decoder) lineOf(field string) int {
	for field != "" {
		if line, ok := d.lines[field]; ok {
			return line
		}
		cut := strings.LastIndexAny(field, ".[")
		field = field[:max(cut, 0)]
	}
	return 1
}
