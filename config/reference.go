package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Reference is the documentation of all settings of a configuration, in
// Markdown, with the values of c as the defaults.
func Reference(c any) string {
	var b strings.Builder
	b.WriteString("| key | default | what it is | what may be written |\n|---|---|---|---|\n")
	walk(reflect.ValueOf(c).Elem(), "", func(s setting) {
		reference(&b, s)
		if s.section {
			return
		}
		t, of := s.field.Type, ".ID"
		if t.Kind() == reflect.Slice {
			of = "[]"
		}
		if (t.Kind() == reflect.Map || t.Kind() == reflect.Slice) && isSection(t.Elem()) {
			element := reflect.New(t.Elem())
			if e, ok := element.Interface().(defaulted); ok {
				e.defaults()
			}
			walk(element.Elem(), s.key+of, func(inner setting) { reference(&b, inner) })
		}
	})
	return b.String()
}

func reference(b *strings.Builder, s setting) {
	if s.section {
		fmt.Fprintf(b, "| **`%s`** | | %s | |\n", s.key, cell(s.field.Tag.Get("doc")))
		return
	}
	value := ""
	if s.value.Kind() != reflect.Pointer || !s.value.IsNil() {
		value = "`" + flow(s.value) + "`"
	}
	if value == "`\"\"`" {
		value = ""
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", s.key, value, cell(s.field.Tag.Get("doc")), cell(describe(s.field.Type, s.field.Tag)))
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
