package config

import (
	"cmp"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/strictyaml"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/openflow"
)

// fields are the settings of one section.
type fields []reflect.StructField

func fieldsOf(t reflect.Type) fields {
	var out fields
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("yaml"); name != "" && name != "-" {
			out = append(out, f)
		}
	}
	return out
}

func (fs fields) find(key string) (reflect.StructField, bool) {
	i := slices.IndexFunc(fs, func(f reflect.StructField) bool { return f.Tag.Get("yaml") == key })
	if i < 0 {
		return reflect.StructField{}, false
	}
	return fs[i], true
}

func (fs fields) names() []string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.Tag.Get("yaml")
	}
	return names
}

// setting is one field of a configuration.
type setting struct {
	key   string
	field reflect.StructField
	value reflect.Value
	// section says that the field holds settings of its own.
	section bool
	depth   int
}

// walk visits all settings and sections below a struct, in order.
func walk(v reflect.Value, prefix string, visit func(setting)) {
	walkDepth(v, prefix, 0, visit)
}

func walkDepth(v reflect.Value, prefix string, depth int, visit func(setting)) {
	for _, f := range fieldsOf(v.Type()) {
		s := setting{key: strictyaml.Join(prefix, f.Tag.Get("yaml")), field: f, value: v.FieldByIndex(f.Index), depth: depth}
		s.section = isSection(f.Type)
		visit(s)
		if s.section {
			walkDepth(s.value, s.key, depth+1, visit)
		}
	}
}

func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !isText(t) && t != reflect.TypeFor[time.Duration]()
}

// descriptions say how values of a type are written.
var descriptions = map[reflect.Type]string{
	reflect.TypeFor[time.Duration]():       "a duration like 500ms, 10s or 5m",
	reflect.TypeFor[units.Rate]():          "a rate like 300Mbit or 1.5Gbit",
	reflect.TypeFor[Size]():                "a size like 1500, 256KiB or 4MiB",
	reflect.TypeFor[Address]():             "an address and port like 127.0.0.1:8080, [2001:db8::1]:8080 or :8080",
	reflect.TypeFor[PortRange]():           "a port or a range of ports like 40000-40999",
	reflect.TypeFor[Tables]():              tablesForm,
	reflect.TypeFor[Secret]():              "text",
	reflect.TypeFor[netip.Addr]():          "an IP address like 192.0.2.1 or 2001:db8::1",
	reflect.TypeFor[netip.Prefix]():        "a prefix like 192.0.2.0/24 or 2001:db8::/32",
	reflect.TypeFor[openflow.MAC]():        "a MAC address like 02:00:00:00:00:01",
	reflect.TypeFor[openflow.DatapathID](): "a datapath id of 16 hex digits like 0000000000000001",
}

// describe says what a field's value should be.
func describe(t reflect.Type, tag reflect.StructTag) string {
	if words := tag.Get("oneof"); words != "" {
		return "one of " + strings.ReplaceAll(words, "|", ", ")
	}
	if t.Kind() == reflect.Pointer { // one that need not be given
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

// inLimits says whether v is what its tag allows.
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
