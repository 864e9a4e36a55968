package config

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Render returns a configuration as YAML that can be read back, except for secrets, which are
// hidden.
func Render(c any) string { return render(c, false) }

// Example returns a configuration as YAML with the documentation of each setting.
func Example(c any) string { return render(c, true) }

func render(c any, documented bool) string {
	var b strings.Builder
	walk(reflect.ValueOf(c).Elem(), "", func(s setting) {
		indent := strings.Repeat("  ", s.depth)
		if documented {
			if s.depth == 0 && b.Len() > 0 {
				b.WriteByte('\n')
			}
			for _, line := range wrap(comment(s), 96-len(indent)) {
				fmt.Fprintf(&b, "%s# %s\n", indent, line)
			}
		}
		fmt.Fprintf(&b, "%s%s:", indent, s.name)
		if !s.section {
			b.WriteString(" " + flow(s.value))
		}
		b.WriteByte('\n')
	})
	return b.String()
}

func comment(s setting) string {
	text := s.tag.Get("doc")
	if words := s.tag.Get("oneof"); words != "" && !s.section {
		text += " (" + strings.ReplaceAll(words, "|", ", ") + ")"
	}
	return text
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// flow returns a value on one line.
func flow(v reflect.Value) string {
	b, err := yaml.Marshal(node(Plain(v.Interface())))
	if err != nil {
		panic("config: a value that cannot be written: " + err.Error()) // node makes only what can be written
	}
	return strings.TrimSpace(string(b))
}

// node returns the YAML of a plain value in flow style.
func node(plain any) *yaml.Node {
	n := &yaml.Node{Style: yaml.FlowStyle}
	switch x := plain.(type) {
	case map[string]any:
		n.Kind = yaml.MappingNode
		for _, k := range slices.Sorted(maps.Keys(x)) {
			n.Content = append(n.Content, node(k), node(x[k]))
		}
	case []any:
		n.Kind = yaml.SequenceNode
		for _, e := range x {
			n.Content = append(n.Content, node(e))
		}
	default:
		if err := n.Encode(plain); err != nil {
			panic("config: a value that cannot be written: " + err.Error())
		}
	}
	return n
}

// Plain converts a configuration, or a part of it, into maps, lists, texts, numbers and booleans.
// Secrets are hidden.
func Plain(c any) any {
	v := reflect.ValueOf(c)
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return short(x)
	case encoding.TextMarshaler:
		b, err := x.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	switch v.Kind() {
	case reflect.Struct:
		out := map[string]any{}
		for _, f := range fieldsOf(v) {
			if f.value.Kind() != reflect.Pointer || !f.value.IsNil() {
				out[f.name] = Plain(f.value.Interface())
			}
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for it := v.MapRange(); it.Next(); {
			out[fmt.Sprint(Plain(it.Key().Interface()))] = Plain(it.Value().Interface())
		}
		return out
	case reflect.Slice:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = Plain(v.Index(i).Interface())
		}
		return out
	}
	return v.Interface()
}

// short formats a duration without the zeros that time.Duration adds.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Reference returns the documentation of all settings of a configuration in Markdown. The values of
// c are the defaults.
func Reference(c any) string {
	var b strings.Builder
	b.WriteString("| key | default | what it is | what may be written |\n|---|---|---|---|\n")
	walk(reflect.ValueOf(c).Elem(), "", func(s setting) {
		reference(&b, s)
		if s.section {
			return
		}
		t, of := s.value.Type(), ".ID"
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
		fmt.Fprintf(b, "| **`%s`** | | %s | |\n", s.key, cell(s.tag.Get("doc")))
		return
	}
	value := ""
	if s.value.Kind() != reflect.Pointer || !s.value.IsNil() {
		value = "`" + flow(s.value) + "`"
	}
	if value == "`\"\"`" {
		value = ""
	}
	text := s.tag.Get("doc")
	if reloads(s.tag) {
		text += " Takes effect without a restart."
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", s.key, value, cell(text), cell(describe(s.value.Type(), s.tag)))
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
