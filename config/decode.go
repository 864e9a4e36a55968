package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/internal/strictyaml"
)

// place is where a setting was given: in a line of the file, in the environment, or in a flag.
type place struct {
	source string
	line   int
	value  string
}

// decoder reads a tree of YAML nodes into a struct and collects problems.
type decoder struct {
	file string
	// origin names the source of nodes that are not from the file.
	origin   map[*yaml.Node]string
	places   map[string]place
	problems Problems
	// warnings lists what should be corrected, but is accepted.
	warnings []string
}

func (d *decoder) place(n *yaml.Node) place {
	if source, ok := d.origin[n]; ok {
		return place{source: source, value: strictyaml.Show(n)}
	}
	return place{source: d.file, line: n.Line, value: strictyaml.Show(n)}
}

func (d *decoder) fail(n *yaml.Node, key, wrong, want string) { d.add(d.place(n), key, wrong, want) }

func (d *decoder) add(p place, key, wrong, want string) {
	d.problems = append(d.problems, Problem{Source: p.source, Line: p.line, Key: key, Value: p.value, Wrong: wrong, Want: want})
}

// decode decodes the node into v, the field that tag describes.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	at := d.place(n)
	switch {
	case n.Kind != yaml.ScalarNode:
	case v.Type() == reflect.TypeFor[Secret]():
		at.value = hidden
	default:
		if r, ok := v.Interface().(Redactor); ok {
			at.value = r.Redact(n.Value)
		}
	}
	d.places[key] = at
	if v.Type() == reflect.TypeFor[Tables]() && n.Kind == yaml.MappingNode {
		n = inline(n)
	}
	switch {
	case isText(v.Type()), v.Type() == reflect.TypeFor[time.Duration]():
		d.scalar(n, v, key, tag)
	case v.Kind() == reflect.Struct:
		d.structure(n, v, key)
	case v.Kind() == reflect.Map:
		d.mapping(n, v, key, tag)
	case v.Kind() == reflect.Slice:
		d.list(n, v, key, tag)
	default:
		d.scalar(n, v, key, tag)
	}
}

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// section checks that the node is a mapping, and reports whether it has content. An empty section
// is like a missing one.
func (d *decoder) section(n *yaml.Node, key string) bool {
	if strictyaml.IsNull(n) {
		return false
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, key, "not a mapping", "write its settings below it, indented, as \"key: value\"")
		return false
	}
	return true
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, key string) {
	if !d.section(n, key) {
		return
	}
	fields := fieldsOf(v)
	for i := 0; i < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		at, full := d.place(k), strictyaml.Join(key, k.Value)
		f, ok := fields.find(k.Value)
		if !ok {
			d.add(place{source: at.source, line: at.line}, full, "unknown key", strictyaml.Suggest(k.Value, fields.names()))
			continue
		}
		d.decode(value, f.value, full, f.tag)
		if value.Kind == yaml.MappingNode {
			// A section begins at its key, not at the first line below it.
			d.places[full] = place{source: at.source, line: at.line, value: d.places[full].value}
		}
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	if !d.section(n, key) {
		return
	}
	t := v.Type()
	out := reflect.MakeMap(t)
	for i := 0; i < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		name := reflect.New(t.Key()).Elem()
		before := len(d.problems)
		// A key that is not a number is text whatever YAML takes it for:
		// 0000000000000001 is a datapath identifier.
		plain := *k
		if name.Kind() != reflect.Int {
			plain.Tag = "!!str"
		}
		if source, ok := d.origin[k]; ok {
			d.origin[&plain] = source
		}
		d.scalar(&plain, name, key, "")
		if len(d.problems) > before {
			continue
		}
		element := reflect.New(t.Elem()).Elem()
		if e, ok := element.Addr().Interface().(defaulted); ok {
			e.defaults()
		}
		d.decode(value, element, strictyaml.Join(key, k.Value), tag)
		out.SetMapIndex(name, element)
	}
	v.Set(out)
}

// defaulted is implemented by elements of maps that have default values.
type defaulted interface{ defaults() }

func (d *decoder) list(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, key, "not a list", "write a list, like [ONE, TWO], of "+describe(v.Type().Elem(), tag))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, e := range n.Content {
		d.decode(e, out.Index(i), fmt.Sprintf("%s[%d]", key, i), tag)
	}
	v.Set(out)
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	want := describe(v.Type(), tag)
	switch {
	case n.Kind != yaml.ScalarNode:
		d.fail(n, key, "not a single value", "write "+want)
		return
	case strictyaml.IsNull(n):
		d.fail(n, key, "without a value", "write "+want+", or leave the key out")
		return
	}
	if err := setScalar(n, v); err != nil {
		d.fail(n, key, err.Error(), "write "+want)
		return
	}
	if !inLimits(v, tag) {
		d.fail(n, key, "out of range", "write "+want)
	}
}

// setScalar sets v from the scalar node, by v's type.
func setScalar(n *yaml.Node, v reflect.Value) error {
	if v.Type() == reflect.TypeFor[time.Duration]() {
		dur, err := time.ParseDuration(n.Value)
		if err != nil {
			return fmt.Errorf("not a duration")
		}
		v.SetInt(int64(dur))
		return nil
	}
	if isText(v.Type()) {
		if n.Value == "" {
			v.SetZero()
			return nil
		}
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err != nil {
			return fmt.Errorf("not readable")
		}
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		if n.Tag != "!!str" {
			return fmt.Errorf("not text (YAML takes it for a %s; quotes make it text)", strings.TrimPrefix(n.Tag, "!!"))
		}
		v.SetString(n.Value)
	case reflect.Bool:
		if n.Tag != "!!bool" {
			return fmt.Errorf("neither true nor false")
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
		if n.Tag != "!!int" || err != nil {
			return fmt.Errorf("not a whole number")
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if (n.Tag != "!!int" && n.Tag != "!!float") || err != nil || f != f {
			return fmt.Errorf("not a number")
		}
		v.SetFloat(f)
	default:
		panic("config: a setting of type " + v.Type().String() + " cannot be read")
	}
	return nil
}
