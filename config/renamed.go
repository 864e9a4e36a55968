package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// renamed are sections of a controller's configuration that once had other names. What stands
// under an old name is read as if it stood under the new one, with a warning.
var renamed = []struct{ old, now string }{{"sos.tls", "agents.tls"}}

// newName returns the name that a key has now, and reports whether it had another one.
func newName(key string) (string, bool) {
	for _, r := range renamed {
		if rest, ok := strings.CutPrefix(key, r.old+"."); ok {
			return r.now + "." + rest, true
		}
	}
	return key, false
}

// moveRenamed moves what stands under old names in the file to the new ones.
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
		d.warn(r.old)
	}
}

// warn notes once that an old name is used.
func (d *decoder) warn(key string) {
	for _, r := range renamed {
		if key == r.old || strings.HasPrefix(key, r.old+".") {
			text := fmt.Sprintf("%s is an old name of %s: write that", r.old, r.now)
			if !slices.Contains(d.warnings, text) {
				d.warnings = append(d.warnings, text)
			}
		}
	}
}
