package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/internal/wholefile"
)

// Contexts is an operator's file of contexts: the controllers to which commands can connect.
type Contexts struct {
	Current  string             `yaml:"current" form:"the name of one of the contexts" doc:"The context that is used if neither flags nor the environment describe a connection."`
	Contexts map[string]Context `yaml:"contexts" doc:"Controllers, by the names under which an operator knows them."`

	file string
}

// Context describes how commands connect to one controller. Relative names of files are relative to
// the folder of the file that contains the context.
type Context struct {
	Server    string `yaml:"server" form:"a URL like https://192.0.2.1:8443" doc:"URL of the controller's API."`
	CA        string `yaml:"ca" doc:"Certificate authority of the API, PEM. Empty: those of the system."`
	Cert      string `yaml:"cert" doc:"Client certificate, PEM."`
	Key       string `yaml:"key" doc:"Key of the client certificate, PEM."`
	TokenFile string `yaml:"token_file" doc:"File with the API token, instead of a certificate."`
}

// LoadContexts reads an operator's contexts. A file that does not exist, or an empty name, means no
// contexts. If the file is wrong, the error is Problems.
func LoadContexts(file string) (*Contexts, error) {
	c := &Contexts{Contexts: map[string]Context{}, file: file}
	text, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if err := Parse(Sources{File: file}, text, c); err != nil {
		return nil, err
	}
	return c, nil
}

// Check implements Checked.
func (c *Contexts) Check(k *Checker) {
	for name, one := range c.Contexts {
		key := "contexts." + name
		k.Require(CheckContextName(name) == nil, key, "not a name", "letters, digits, dots, dashes and underscores")
		u, err := url.Parse(one.Server)
		k.Require(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", key+".server", "not a URL", "a URL like https://192.0.2.1:8443")
		k.Require((one.Cert == "") == (one.Key == ""), key+".cert", "incomplete", "cert and key belong together: set both or none")
	}
	_, ok := c.Contexts[c.Current]
	k.Require(ok || c.Current == "", "current", "no such context", "one of "+strings.Join(c.Names(), ", "))
}

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckContextName returns an error if a name is no valid name of a context.
func CheckContextName(name string) error {
	if !contextName.MatchString(name) {
		return fmt.Errorf("context %q: use up to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit", name)
	}
	return nil
}

// Names returns the names of the contexts, sorted.
func (c *Contexts) Names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// Get returns the context with a name. In it, relative names of files are relative to the working
// folder instead of the folder of the contexts' file.
func (c *Contexts) Get(name string) (Context, error) {
	one, ok := c.Contexts[name]
	if !ok {
		err := fmt.Errorf("%s has no context %q", c.file, name)
		if names := c.Names(); len(names) > 0 {
			return one, fmt.Errorf("%w; it has %s", err, strings.Join(names, ", "))
		}
		return one, fmt.Errorf("%w: \"sluice context add\" makes one", err)
	}
	for _, file := range []*string{&one.CA, &one.Cert, &one.Key, &one.TokenFile} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(filepath.Dir(c.file), *file)
		}
	}
	return one, nil
}

// Write writes the contexts to their file atomically. Only its owner can read it.
func (c *Contexts) Write() error {
	empty := func(_ string, value any) bool { return value == "" }
	plain := Plain(c).(map[string]any)
	maps.DeleteFunc(plain, empty)
	for _, one := range plain["contexts"].(map[string]any) {
		maps.DeleteFunc(one.(map[string]any), empty)
	}
	text, err := yaml.Marshal(plain)
	if err == nil {
		err = replace(c.file, text)
	}
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}

// replace writes a file atomically. If the name is a symbolic link, it writes the file to which the
// link leads.
func replace(file string, text []byte) error {
	if file == "" {
		return errors.New("there is no file for contexts: set HOME or SLUICE_CONTEXTS")
	}
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", file)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return wholefile.Replace(file, text, 0o600)
}
