package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// renamed lists sections of a controller's configuration that had other names. Settings below an
// old name are read as if they were below the new one, with a warning.
var renamed = []renaming{{"sos.tls", "agents.tls"}}

// renaming is the old and the present name of a section.
type renaming struct{ old, now string }

// newName returns the present name of a key, and adds a warning if key is an old one.
func (d *decoder) newName(key string) string {
	for _, r := range renamed {
		if rest, ok := strings.CutPrefix(key, r.old+"."); ok {
			d.warn(r)
			return r.now + "." + rest
		}
	}
	return key
}

// newVariable returns the present name of an environment variable, and adds a warning if name is an
// old one.
func (d *decoder) newVariable(name string) string {
	for _, r := range renamed {
		if rest, ok := strings.CutPrefix(name, envName(r.old)+"_"); ok {
			d.warn(r)
			return envName(r.now) + "_" + rest
		}
	}
	return name
}

// moveRenamed moves settings below old names in the file to the new names.
func (d *decoder) moveRenamed(root *yaml.Node) {
	for _, r := range renamed {
		section, key, _ := strings.Cut(r.old, ".")
		newSection, newKey, _ := strings.Cut(r.now, ".")
		outer := under(root, section)
		if outer == nil || (*outer).Kind != yaml.MappingNode {
			continue
		}
		i := slices.IndexFunc((*outer).Content, func(n *yaml.Node) bool { return n.Value == key })
		if i < 0 || i%2 != 0 {
			continue
		}
		value := (*outer).Content[i+1]
		into := under(root, newSection)
		if into != nil && ((*into).Kind != yaml.MappingNode || under(*into, newKey) != nil) {
			d.fail((*outer).Content[i], r.old, "given beside "+r.now+", which is its new name", "keep "+r.now+" alone")
			continue
		}
		k := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: newKey, Line: (*outer).Content[i].Line}
		if into == nil {
			root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: newSection, Line: k.Line},
				&yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: k.Line, Content: []*yaml.Node{k, value}})
		} else {
			(*into).Content = append((*into).Content, k, value)
		}
		(*outer).Content = slices.Delete((*outer).Content, i, i+2)
		d.warn(r)
	}
}

// warn adds a warning about an old name, once.
func (d *decoder) warn(r renaming) {
	text := fmt.Sprintf("%s is an old name of %s: use the new name", r.old, r.now)
	if !slices.Contains(d.warnings, text) {
		d.warnings = append(d.warnings, text)
	}
}
