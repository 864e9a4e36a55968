package config

import (
	"errors"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/internal/strictyaml"
)

// Sources holds the sources of a configuration. Each overrides the one before it.
type Sources struct {
	// File is the path of the YAML file; empty means none.
	File string
	// Env holds variables like those of os.Environ. Only those that name settings are used.
	Env []string
	// Set holds "key=value" pairs from flags.
	Set []string
	// Again is set when a program reads its configuration again while it runs. It refuses a
	// file without any setting: an editor or a full disk may just have emptied the file, and
	// an empty file would withdraw everything that the file declared before.
	Again bool
	// NoFiles turns off the check whether the files exist that the configuration names, so that a
	// configuration for another machine can be checked.
	NoFiles bool
}

// Problem describes one thing that is wrong with a configuration. Its source is the file,
// "environment" or "flags".
type Problem = strictyaml.Problem

// Problems lists everything that is wrong with a configuration.
type Problems = strictyaml.Problems

// Checked is a configuration: a pointer to a struct. Its fields have the tags yaml (the key) and
// doc (the description). They may have form, oneof, pattern, min and max (the valid values),
// file ("yes" for the name of a file that must exist) and reload ("yes" for a setting that takes
// effect without a restart).
type Checked interface {
	// Check reports problems beyond the single values.
	Check(*Checker)
}

// Kind is a program that reads a configuration.
type Kind struct {
	// Name is the program's name, like controller.
	Name string
	// Title is the program's heading in the reference, and Intro a sentence below it.
	Title, Intro string
	// Default returns the program's configuration with default values.
	Default func() Checked
}

// Load reads a configuration of this kind. If the configuration is wrong, the error is Problems.
func (k Kind) Load(s Sources) (Checked, error) {
	c := k.Default()
	return c, Load(s, c)
}

// KindOf returns the kind of program for which a file is probably written: the one that knows most
// of the file's sections, and the first of several with equal numbers. It returns an error if the
// file cannot be read or is not YAML.
func KindOf(file string, kinds []Kind) (Kind, error) {
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
	for _, k := range kinds {
		known := fieldsOf(reflect.ValueOf(k.Default()).Elem())
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

// Load reads a configuration into a struct that holds the defaults. If the configuration is wrong,
// the error is Problems.
func Load(s Sources, into Checked) error {
	var text []byte
	if s.File != "" {
		var err error
		if text, err = readFile(s.File); err != nil {
			return err
		}
	}
	return Parse(s, text, into)
}

func readFile(name string) ([]byte, error) {
	text, err := strictyaml.ReadFile(name)
	var problems Problems
	if err != nil && !errors.As(err, &problems) {
		err = fmt.Errorf("configuration: %w", err)
	}
	return text, err
}

// Parse reads a configuration from the text of a file, which problems call s.File, and from the
// other sources into a struct that holds the defaults. If the configuration is wrong, the error is
// Problems.
func Parse(s Sources, text []byte, into Checked) error {
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
	controller, isController := into.(*Controller)
	if isController {
		d.moveRenamed(root)
	}
	v := reflect.ValueOf(into).Elem()
	d.overlay(root, v, s.Env, s.Set)
	d.decode(root, v, "", "")
	if len(d.problems) == 0 {
		// Check compares values with each other, so each must be valid by itself.
		into.Check(&Checker{d: d, noFiles: s.NoFiles})
	}
	if len(d.problems) > 0 {
		return d.problems.Sort()
	}
	if isController {
		controller.Warnings = d.warnings
	}
	return nil
}
