package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

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
