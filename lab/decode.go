package lab

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// maxFile bounds a topology file.
const maxFile = 4 << 20

// decoder collects what is wrong with a document, all of it, and remembers the
// line of every field for what is found later.
type decoder struct {
	problems []Problem
	lines    map[string]int
}

// value is a node of the document and the path that leads to it.
type value struct {
	d    *decoder
	node *yaml.Node
	path string
}

func (v value) fail(format string, args ...any) {
	v.d.problems = append(v.d.problems, Problem{Field: v.path, Line: v.node.Line, Text: fmt.Sprintf(format, args...)})
}

// parseDocument returns the root of the only document in b.
func (d *decoder) parseDocument(b []byte) (value, error) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return value{}, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return value{}, errors.New("more than one YAML document")
	}
	return value{d: d, node: doc.Content[0], path: ""}, nil
}

func (v value) child(key string, node *yaml.Node) value {
	path := key
	if v.path != "" {
		path = v.path + "." + key
	}
	v.d.lines[path] = node.Line
	return value{d: v.d, node: node, path: path}
}

// each calls f for the entries of a mapping in their order. Keys must be plain
// and occur once.
func (v value) each(f func(key string, v value)) {
	if v.node.Kind != yaml.MappingNode {
		v.fail("expected a mapping of names to values, got %s", describe(v.node))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := v.node.Content[i]
		c := v.child(key.Value, v.node.Content[i+1])
		v.d.lines[c.path] = key.Line
		if key.Kind != yaml.ScalarNode {
			value{v.d, key, v.path}.fail("a key must be a plain word")
			continue
		}
		if line, ok := seen[key.Value]; ok {
			value{v.d, key, c.path}.fail("occurs twice, first in line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		f(key.Value, c)
	}
}

// fields reads a mapping of known keys.
func (v value) fields(known map[string]func(value)) {
	v.each(func(key string, c value) {
		read, ok := known[key]
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			c.node = &yaml.Node{Kind: c.node.Kind, Line: v.d.lines[c.path]}
			c.fail("unknown key; known here: %s", strings.Join(names, ", "))
			return
		}
		read(c)
	})
}

// list calls f for the items of a sequence.
func (v value) list(f func(i int, v value)) {
	if v.node.Kind != yaml.SequenceNode {
		v.fail("expected a list, got %s", describe(v.node))
		return
	}
	for i, n := range v.node.Content {
		f(i, value{d: v.d, node: n, path: v.path + "[" + strconv.Itoa(i) + "]"})
	}
}

func (v value) isNull() bool { return v.node.Kind == yaml.ScalarNode && v.node.Tag == "!!null" }

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias, which topologies do not use"
	}
	return strconv.Quote(n.Value)
}

// text reads a scalar as it is written.
func (v value) text(set func(string) error) {
	if v.node.Kind != yaml.ScalarNode || v.isNull() {
		v.fail("expected a single value, got %s", describe(v.node))
		return
	}
	if err := set(v.node.Value); err != nil {
		v.fail("%v", err)
	}
}

// into reads a scalar with a parser.
func into[T any](v value, target *T, parse func(string) (T, error)) {
	v.text(func(s string) error {
		x, err := parse(s)
		if err == nil {
			*target = x
		}
		return err
	})
}

// items reads a list of scalars with a parser.
func items[T any](v value, target *[]T, parse func(string) (T, error)) {
	v.list(func(_ int, c value) {
		var x T
		into(c, &x, parse)
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

// sorted returns the problems in the order of the file.
func (d *decoder) sorted() []Problem {
	slices.SortStableFunc(d.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return d.problems
}

// lineOf is the line of a field, or of the nearest thing around it.
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
