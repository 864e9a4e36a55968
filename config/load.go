package config

import (
	"errors"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/internal/strictyaml"
)

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
	// Again is set when a program reads its configuration again while it runs. It refuses a
	// file without any setting: an editor or a full disk may just have emptied the file, and
	// an empty file would withdraw everything that the file declared before.
	Again bool
	// NoFiles leaves out whether the files which the configuration names are
	// there, for checking a configuration on another machine.
	NoFiles bool
}

// Problem is one thing that is wrong with a configuration. Its source is the file,
// "environment" or "flags".
type Problem = strictyaml.Problem

// Problems is everything that is wrong with a configuration.
type Problems = strictyaml.Problems

type checked interface{ check(*checker) }

// Kind is a program that reads a configuration.
type Kind struct {
	// Name is the program's, like controller.
	Name string
	// Load reads a configuration; if anything is wrong the error is Problems.
	Load func(Sources) (any, error)
	// Default is the configuration of a program that is told nothing.
	Default func() any
}

// Kinds lists the programs that read a configuration.
func Kinds() []Kind {
	return []Kind{
		{"controller", func(s Sources) (any, error) { return LoadController(s) }, func() any { return DefaultController() }},
		{"agent", func(s Sources) (any, error) { return LoadAgent(s) }, func() any { return DefaultAgent() }},
		{"mobile", func(s Sources) (any, error) { return LoadMobile(s) }, func() any { return DefaultMobile() }},
		{"cinema-egress", func(s Sources) (any, error) { return LoadEgress(s) }, func() any { return DefaultEgress() }},
		{"cinema-ingress", func(s Sources) (any, error) { return LoadIngress(s) }, func() any { return DefaultIngress() }},
	}
}

// KindOf returns the kind of program whose configuration a file looks like: the one that has
// most of the file's sections. Of several with as many it is the first of Kinds. A file that
// cannot be read, or is no YAML, is an error.
func KindOf(file string) (Kind, error) {
	text, err := readFile(file)
	if err != nil {
		return Kind{}, err
	}
	root, problems := strictyaml.Parse(file, text)
	if root == nil {
		return Kind{}, problems
	}
	var best Kind
	most := -1
	for _, k := range Kinds() {
		known := fieldsOf(reflect.TypeOf(k.Default()).Elem())
		n := 0
		for i := 0; i+1 < len(root.Content); i += 2 {
			if _, has := known.find(root.Content[i].Value); has {
				n++
			}
		}
		if n > most {
			best, most = k, n
		}
	}
	return best, nil
}

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

// LoadMobile reads the configuration of a mobile device. If anything is wrong the
// error is Problems.
func LoadMobile(s Sources) (*Mobile, error) {
	m := DefaultMobile()
	return m, load(s, m)
}

// LoadIngress reads the configuration of an ingress gateway of Cinema. If anything is wrong
// the error is Problems.
func LoadIngress(s Sources) (*Ingress, error) {
	g := DefaultIngress()
	return g, load(s, g)
}

// LoadEgress reads the configuration of an egress gateway of Cinema. If anything is wrong
// the error is Problems.
func LoadEgress(s Sources) (*Egress, error) {
	e := DefaultEgress()
	return e, load(s, e)
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
	text, err := strictyaml.ReadFile(name)
	var problems Problems
	if err != nil && !errors.As(err, &problems) {
		err = fmt.Errorf("configuration: %w", err)
	}
	return text, err
}

// parse reads the text of the file, and what goes over it, into the struct.
func parse(s Sources, text []byte, into checked) error {
	d := &decoder{file: s.File, origin: map[*yaml.Node]string{}, places: map[string]place{}}
	if d.file == "" {
		d.file = "defaults"
	}
	root, problems := strictyaml.Parse(d.file, text)
	if d.problems = problems; root == nil {
		return problems
	}
	if s.Again && s.File != "" && len(root.Content) == 0 {
		return Problems{{Source: s.File, Wrong: "no setting in it", Want: "to withdraw everything, start the program again with the empty file"}}
	}
	v := reflect.ValueOf(into).Elem()
	d.overlay(root, v.Type(), s.Env, s.Set)
	d.decode(root, v, "", "")
	if len(d.problems) == 0 {
		// Only values that are right by themselves can be compared.
		into.check(&checker{d: d, noFiles: s.NoFiles})
	}
	if len(d.problems) > 0 {
		return d.problems.Sort()
	}
	return nil
}
