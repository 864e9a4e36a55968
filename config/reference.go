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
		if s.section {
			fmt.Fprintf(&b, "| **`%s`** | | %s | |\n", s.key, cell(s.field.Tag.Get("doc")))
			return
		}
		reference(&b, s)
		if t := s.field.Type; t.Kind() == reflect.Map {
			element := reflect.New(t.Elem())
			if e, ok := element.Interface().(defaulted); ok {
				e.defaults()
			}
			walk(element.Elem(), s.key+".ID", func(inner setting) { reference(&b, inner) })
		}
	})
	return b.String()
}

func reference(b *strings.Builder, s setting) {
	value := "`" + flow(s.value) + "`"
	if value == "`\"\"`" {
		value = ""
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", s.key, value, cell(s.field.Tag.Get("doc")), cell(describe(s.field.Type, s.field.Tag)))
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
