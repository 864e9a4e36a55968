package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a configuration file.
const maxFile = 1 << 20

// Sources are what a configuration is read from; each goes over the one
// before it.
type Sources struct {
	// File is the path of the YAML file; empty means none.
	File string
	// Env are variables like os.Environ returns; those that name settings
	// count.
	Env []string
	// Set are "key=value" pairs from flags.
	Set []string
	// NoFiles leaves out whether the files which the configuration names are
	// there, for checking a configuration on another machine.
	NoFiles bool
}

type checked interface{ check(*checker) }

// LoadController reads the configuration of a controller. If anything is wrong
// the error is Problems.
func LoadController(s Sources) (*Controller, error) {
	c := DefaultController()
	return c, load(s, c)
}

// LoadAgent reads the configuration of an agent. If anything is wrong the
// error is Problems.
func LoadAgent(s Sources) (*Agent, error) {
	a := DefaultAgent()
	return a, load(s, a)
}

func load(s Sources, into checked) error {
	var text []byte
	if s.File != "" {
		var err error
		if text, err = readFile(s.File); err != nil {
			return err
		}
	}
	return parse(s, text, into)
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if len(text) > maxFile {
		return nil, Problems{{Source: name, Wrong: "larger than 1 MiB", Want: "a configuration file"}}
	}
	return text, nil
}

// parse reads the text of the file, and what goes over it, into the struct.
func parse(s Sources, text []byte, into checked) error {
	d := &decoder{file: s.File, origin: map[*yaml.Node]string{}, places: map[string]place{}}
	if d.file == "" {
		d.file = "defaults"
	}
	root, problem := tree(d.file, text)
	if problem != nil {
		return Problems{*problem}
	}
	v := reflect.ValueOf(into).Elem()
	d.overlay(root, v.Type(), s.Env, s.Set)
	d.decode(root, v, "", "")
	if len(d.problems) == 0 {
		// Only values that are right by themselves can be compared.
		into.check(&checker{d: d, noFiles: s.NoFiles})
	}
	if len(d.problems) > 0 {
		return d.problems.sorted()
	}
	return nil
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// tree reads YAML into its top-level mapping.
func tree(file string, text []byte) (*yaml.Node, *Problem) {
	empty := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return empty, nil
	} else if err != nil {
		return nil, syntaxProblem(file, err)
	}
	if err := dec.Decode(&second); err == nil {
		return nil, &Problem{Source: file, Line: second.Line, Wrong: "a second document", Want: "one document a file: remove the line \"---\" and what follows"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxProblem(file, err)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return empty, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, &Problem{Source: file, Line: root.Line, Value: show(root), Wrong: "not settings", Want: "write \"key: value\" lines; \"sluice config example\" prints a file to start from"}
	}
	return root, nil
}

func syntaxProblem(file string, err error) *Problem {
	p := &Problem{Source: file, Want: "YAML: \"key: value\", sections indented by spaces"}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		text = strings.Replace(text, m[0], "", 1)
	}
	p.Wrong = "not readable as YAML (" + text + ")"
	return p
}
