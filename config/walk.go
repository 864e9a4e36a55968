package config

import (
	"reflect"
	"time"

	"github.com/sluice-net/sluice/internal/strictyaml"
)

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
