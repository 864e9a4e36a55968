package config

import (
	"cmp"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/strictyaml"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/openflow"
)

// field is one setting or section of a configuration, by its key.
type field struct {
	name  string
	tag   reflect.StructTag
	value reflect.Value
}

// fields are the settings of one section.
type fields []field

// fieldsOf returns the settings of a struct. Those of a controller's configuration include the
// services' sections.
func fieldsOf(v reflect.Value) fields {
	var out fields
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name := f.Tag.Get("yaml"); name != "" && name != "-" {
			out = append(out, field{name, f.Tag, v.FieldByIndex(f.Index)})
		}
	}
	if c, ok := v.Interface().(Controller); ok {
		for _, s := range c.Services {
			out = append(out, field{s.Key, reflect.StructTag("doc:" + strconv.Quote(s.Doc)), reflect.ValueOf(s.Section).Elem()})
		}
	}
	return out
}

func (fs fields) find(key string) (field, bool) {
	i := slices.IndexFunc(fs, func(f field) bool { return f.name == key })
	if i < 0 {
		return field{}, false
	}
	return fs[i], true
}

func (fs fields) names() []string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.name
	}
	return names
}

// setting is a field of a configuration with its whole key.
type setting struct {
	field
	key string
	// section reports whether the field has settings of its own.
	section bool
	depth   int
}

// walk visits all settings and sections below a struct, in order.
func walk(v reflect.Value, prefix string, visit func(setting)) {
	walkDepth(v, prefix, 0, visit)
}

func walkDepth(v reflect.Value, prefix string, depth int, visit func(setting)) {
	for _, f := range fieldsOf(v) {
		s := setting{field: f, key: strictyaml.Join(prefix, f.name), depth: depth}
		s.section = isSection(f.value.Type())
		visit(s)
		if s.section {
			walkDepth(s.value, s.key, depth+1, visit)
		}
	}
}

func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !isText(t) && t != reflect.TypeFor[time.Duration]()
}

// AddressForm describes how an Address is written.
const AddressForm = "an address and port like 127.0.0.1:8080, [2001:db8::1]:8080 or :8080"

// descriptions says, by type, how values are written.
var descriptions = map[reflect.Type]string{
	reflect.TypeFor[time.Duration]():       "a duration like 500ms, 10s or 5m",
	reflect.TypeFor[units.Rate]():          "a rate like 300Mbit or 1.5Gbit",
	reflect.TypeFor[Size]():                "a size like 1500, 256KiB or 4MiB",
	reflect.TypeFor[Address]():             AddressForm,
	reflect.TypeFor[PortRange]():           "a port or a range of ports like 40000-40999",
	reflect.TypeFor[Tables]():              tablesForm,
	reflect.TypeFor[Secret]():              "text",
	reflect.TypeFor[netip.Addr]():          "an IP address like 192.0.2.1 or 2001:db8::1",
	reflect.TypeFor[netip.Prefix]():        "a prefix like 192.0.2.0/24 or 2001:db8::/32",
	reflect.TypeFor[openflow.MAC]():        "a MAC address like 02:00:00:00:00:01",
	reflect.TypeFor[openflow.DatapathID](): "a datapath id of 16 hex digits like 0000000000000001",
}

// describe returns a description of a field's valid values.
func describe(t reflect.Type, tag reflect.StructTag) string {
	if words := tag.Get("oneof"); words != "" {
		return "one of " + strings.ReplaceAll(words, "|", ", ")
	}
	if t.Kind() == reflect.Pointer { // an optional setting
		t = t.Elem()
	}
	what, ok := descriptions[t]
	if !ok {
		switch t.Kind() {
		case reflect.Bool:
			return "true or false"
		case reflect.Int, reflect.Int64:
			what = "a whole number"
		case reflect.Float64:
			what = "a number"
		case reflect.Slice:
			return "a list of values, each " + describe(t.Elem(), tag)
		case reflect.Map:
			return "settings for each " + strings.TrimPrefix(strings.TrimPrefix(describe(t.Key(), ""), "a "), "an ")
		case reflect.Struct:
			return "settings"
		default:
			what = "text"
		}
	}
	if s := tag.Get("form"); s != "" {
		what = s
	}
	low, high := tag.Get("min"), tag.Get("max")
	switch {
	case low != "" && high != "":
		what += ", from " + low + " to " + high
	case low != "":
		what += ", at least " + low
	case high != "":
		what += ", at most " + high
	}
	return what
}

// inLimits reports whether a value is within the limits of its tag.
func inLimits(v reflect.Value, tag reflect.StructTag) bool {
	if words := tag.Get("oneof"); words != "" && !slices.Contains(strings.Split(words, "|"), v.String()) {
		return false
	}
	if pattern := tag.Get("pattern"); pattern != "" && v.String() != "" && !regexp.MustCompile(`^(?:`+pattern+`)$`).MatchString(v.String()) {
		return false
	}
	if low := tag.Get("min"); low != "" && compare(v, low) < 0 {
		return false
	}
	if high := tag.Get("max"); high != "" && compare(v, high) > 0 {
		return false
	}
	return true
}

// compare compares v with a limit written like a value of v's type. A limit
// that cannot be read is an error of this package, found by its tests.
func compare(v reflect.Value, limit string) int {
	n, _ := strictyaml.Value(limit)
	l := reflect.New(v.Type()).Elem()
	if err := setScalar(n, l); err != nil {
		panic("config: a limit in a tag: " + err.Error())
	}
	if v.Kind() == reflect.Float64 {
		return cmp.Compare(v.Float(), l.Float())
	}
	return cmp.Compare(v.Int(), l.Int())
}
