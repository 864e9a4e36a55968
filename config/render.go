package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Render writes a configuration as YAML that reads back as the same one, but
// for secrets, which are hidden.
func Render(c any) string { return render(c, false) }

// Example writes a configuration as YAML with each setting's documentation.
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
		fmt.Fprintf(&b, "%s%s:", indent, s.field.Tag.Get("yaml"))
		if !s.section {
			b.WriteString(" " + flow(s.value))
		}
		b.WriteByte('\n')
	})
	return b.String()
}

func comment(s setting) string {
	text := s.field.Tag.Get("doc")
	if words := s.field.Tag.Get("oneof"); words != "" && !s.section {
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

// flow writes a value on one line.
func flow(v reflect.Value) string {
	b, err := yaml.Marshal(node(v))
	if err != nil {
		panic("config: a value that cannot be written: " + err.Error()) // nodes are made below
	}
	return strings.TrimSpace(string(b))
}

// node is the YAML of a value, in flow style.
func node(v reflect.Value) *yaml.Node {
	plain := Plain(v.Interface())
	switch x := plain.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		names := make([]string, 0, len(x))
		for k := range x {
			names = append(names, k)
		}
		slices.Sort(names)
		for _, k := range names {
			n.Content = append(n.Content, node(reflect.ValueOf(k)), node(reflect.ValueOf(x[k])))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, e := range x {
			n.Content = append(n.Content, node(reflect.ValueOf(e)))
		}
		return n
	}
	n := &yaml.Node{}
	if err := n.Encode(plain); err != nil {
		panic("config: a value that cannot be written: " + err.Error())
	}
	return n
}

// Plain turns a configuration, or a part of it, into maps, lists, texts,
// numbers and truth values, with secrets hidden.
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
		for _, f := range fieldsOf(v.Type()) {
			if field := v.FieldByIndex(f.Index); field.Kind() == reflect.Pointer && field.IsNil() {
				continue
			}
			out[f.Tag.Get("yaml")] = Plain(v.FieldByIndex(f.Index).Interface())
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

// short writes a duration without the zeros that time.Duration adds.
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
