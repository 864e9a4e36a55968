package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/internal/wholefile"
)

// Limits of a file.
const (
	MaxBytes = 4 << 20
	MaxDepth = 32      // nesting depth of lists and mappings
	MaxNodes = 1 << 19 // number of single values, lists and mappings
)

// ReadFile reads a regular file of at most MaxBytes. For a larger file it returns a Problems error.
func ReadFile(name string) ([]byte, error) {
	text, err := wholefile.Read(name, MaxBytes)
	if errors.Is(err, wholefile.ErrTooLarge) {
		return nil, Problems{tooLarge(name)}
	}
	return text, err
}

func tooLarge(name string) Problem {
	return Problem{Source: name, Wrong: "larger than 4 MiB", Want: "a file that somebody has written"}
}

// Parse parses a file, which must contain one mapping; an empty file is an empty mapping. If the
// returned tree is not nil, it can be decoded, to find further problems. Its content may be used
// only if there are no problems.
func Parse(file string, text []byte) (*yaml.Node, Problems) {
	empty := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if len(text) > MaxBytes {
		return nil, Problems{tooLarge(file)}
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return empty, nil
	} else if err != nil {
		return nil, Problems{syntax(file, err)}
	}
	if err := dec.Decode(&second); err == nil {
		return nil, Problems{{Source: file, Line: second.Line, Wrong: "a second document", Want: "one document a file: remove the line \"---\" and what follows"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, Problems{syntax(file, err)}
	}
	root := doc.Content[0]
	if IsNull(root) {
		return empty, nil
	}
	c := checker{file: file}
	if c.walk(root, "", 0); c.fatal {
		return nil, c.problems
	}
	if root.Kind != yaml.MappingNode {
		return nil, append(c.problems, Problem{Source: file, Line: root.Line, Value: Show(root), Wrong: "not a mapping", Want: "write \"key: value\" lines"})
	}
	return root, c.problems
}

// Value parses one value that is given as text and not in a file. It returns false if the text is
// not a valid value.
func Value(text string) (*yaml.Node, bool) {
	var doc yaml.Node
	if len(text) > MaxBytes || yaml.Unmarshal([]byte(text), &doc) != nil || len(doc.Content) != 1 {
		return nil, false
	}
	var c checker
	c.walk(doc.Content[0], "", 0)
	return doc.Content[0], len(c.problems) == 0
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

func syntax(file string, err error) Problem {
	p := Problem{Source: file, Want: "YAML: \"key: value\", sections indented by spaces"}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		text = strings.Replace(text, m[0], "", 1)
	}
	p.Wrong = "not readable as YAML (" + text + ")"
	return p
}

// checker finds the problems of a tree that decoders must not have to handle.
type checker struct {
	file     string
	nodes    int
	fatal    bool // the tree cannot be decoded
	problems Problems
}

// maxTold limits the number of problems of a tree that are reported.
const maxTold = 100

func (c *checker) fail(n *yaml.Node, key, wrong, want string) {
	if len(c.problems) < maxTold {
		c.problems = append(c.problems, Problem{Source: c.file, Line: n.Line, Key: key, Wrong: wrong, Want: want})
	}
}

func (c *checker) walk(n *yaml.Node, key string, depth int) {
	if c.nodes++; c.nodes > MaxNodes || depth > MaxDepth {
		if !c.fatal {
			c.fail(n, "", fmt.Sprintf("more than %d values, or more than %d levels", MaxNodes, MaxDepth), "a smaller file")
		}
		c.fatal = true
		return
	}
	switch n.Kind {
	case yaml.AliasNode:
		c.fail(n, key, "an alias", "write out what *"+n.Value+" stands for")
		n.Kind, n.Tag, n.Alias = yaml.ScalarNode, "!!null", nil // the aliased value is checked where its anchor is
	case yaml.SequenceNode:
		for i, e := range n.Content {
			c.walk(e, fmt.Sprintf("%s[%d]", key, i), depth+1)
		}
	case yaml.MappingNode:
		c.mapping(n, key, depth)
	}
}

func (c *checker) mapping(n *yaml.Node, key string, depth int) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode {
			c.fail(k, key, "a key that is not a single word", "write keys as they are listed")
			c.fatal = true
			return
		}
		name := Join(key, k.Value)
		if line, twice := first[k.Value]; twice {
			c.fail(k, name, "given twice", fmt.Sprintf("keep one of the two (the first is in line %d)", line))
		} else {
			first[k.Value] = k.Line
		}
		c.walk(n.Content[i+1], name, depth+1)
	}
}

// Join returns the full name of a key in a mapping whose own name is in, such as "api.listen".
func Join(in, key string) string {
	if in == "" {
		return key
	}
	return in + "." + key
}

// IsNull reports whether a node is null or has no value.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// Show returns the text of a node's value for an error message.
func Show(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case IsNull(n):
		return "nothing"
	}
	text := n.Value
	if len(text) > 60 {
		text = text[:57] + "..."
	}
	return strconv.Quote(text)
}
