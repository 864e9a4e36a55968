package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/internal/strictyaml"
)

// envPrefix begins the name of every environment variable of a setting:
// api.listen is SLUICE_API_LISTEN.
const envPrefix = "SLUICE_"

func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// overlay sets the settings of the environment, and then those of the flags, in the file's tree. It
// replaces those that the file has.
func (d *decoder) overlay(root *yaml.Node, v reflect.Value, env, flags []string) {
	leaves, byEnv, sections := map[string]setting{}, map[string]setting{}, map[string]bool{}
	walk(v, "", func(s setting) {
		if s.section {
			sections[envName(s.key)+"_"] = true
		} else {
			leaves[s.key], byEnv[envName(s.key)] = s, s
		}
	})
	slices.Sort(env)
	for _, pair := range env {
		name, text, _ := strings.Cut(pair, "=")
		name = d.newVariable(name)
		if s, ok := byEnv[name]; ok {
			d.set(root, s, text, "environment")
		} else if i := strings.IndexByte(strings.TrimPrefix(name, envPrefix), '_'); strings.HasPrefix(name, envPrefix) && i > 0 && sections[name[:len(envPrefix)+i+1]] {
			d.add(place{source: "environment"}, name, "unknown variable", suggestFrom(name, byEnv))
		}
	}
	for _, pair := range flags {
		key, text, ok := strings.Cut(pair, "=")
		key = d.newName(key)
		s, known := leaves[key]
		switch {
		case !ok:
			d.add(place{source: "flags"}, pair, "without a value", "write --set KEY=VALUE, like --set log.level=debug")
		case !known:
			d.add(place{source: "flags"}, key, "unknown key", suggestFrom(key, leaves))
		default:
			d.set(root, s, text, "flags")
		}
	}
}

func suggestFrom(name string, known map[string]setting) string {
	if near := strictyaml.Nearest(name, slices.Collect(maps.Keys(known)), 3); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "\"sluice config example\" lists the settings"
}

// set puts one value from outside the file into the tree.
func (d *decoder) set(root *yaml.Node, s setting, text, source string) {
	parts := strings.Split(s.key, ".")
	last, n := len(parts)-1, root
	for _, part := range parts[:last] {
		if n = d.child(n, part, source); n == nil {
			return // the file has a value where a section must be, which decode reports
		}
	}
	d.put(n, parts[last], outsideNode(s.value.Type(), text), source)
}

// child returns the mapping below a key, and creates it if it does not exist.
func (d *decoder) child(n *yaml.Node, key, source string) *yaml.Node {
	at := under(n, key)
	if at == nil {
		return d.put(n, key, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}, source)
	}
	c := *at
	if strictyaml.IsNull(c) {
		c.Kind, c.Tag, c.Value = yaml.MappingNode, "!!map", ""
	}
	if c.Kind != yaml.MappingNode {
		return nil
	}
	return c
}

// put sets the value of a key in a mapping.
func (d *decoder) put(n *yaml.Node, key string, value *yaml.Node, source string) *yaml.Node {
	d.mark(value, source)
	if at := under(n, key); at != nil {
		*at = value
		return value
	}
	k := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
	d.mark(k, source)
	n.Content = append(n.Content, k, value)
	return value
}

// under returns a pointer to the element of a mapping that holds a key's value, or nil if the mapping
// does not have the key.
func under(n *yaml.Node, key string) **yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return &n.Content[i+1]
		}
	}
	return nil
}

func (d *decoder) mark(n *yaml.Node, source string) {
	d.origin[n] = source
	for _, c := range n.Content {
		d.mark(c, source)
	}
}

// outsideNode returns the node of a value that is given as text for a setting of a type. Text is
// taken literally, a list may be written with commas, and any other value is parsed as YAML.
func outsideNode(t reflect.Type, text string) *yaml.Node {
	plain := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	trimmed := strings.TrimSpace(text)
	if t.Kind() == reflect.Slice && !strings.HasPrefix(trimmed, "[") {
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for part := range strings.SplitSeq(trimmed, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list.Content = append(list.Content, outsideNode(t.Elem(), part))
			}
		}
		return list
	}
	if t.Kind() == reflect.String || isText(t) {
		return plain
	}
	value, ok := strictyaml.Value(text)
	if !ok {
		return plain
	}
	return value
}
