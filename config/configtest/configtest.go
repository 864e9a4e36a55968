// Package configtest tests that wrong configurations are refused, for the packages that define
// configurations.
package configtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/config"
)

// Wrong is a wrong configuration, and the problem that must be reported for it.
type Wrong struct {
	Name string
	// Text is the configuration. FILE in it stands for the path of an existing file.
	Text string
	// Line is the line that the problem must name; 0 means any line.
	Line int
	Key  string
	// Value must be part of the problem's value, and Want part of its description of what would be
	// right.
	Value, Want string
}

// Refuses fails the test unless each configuration is refused with exactly one problem, the one that it
// describes. defaults returns a configuration with default values.
func Refuses(t *testing.T, wrongs []Wrong, defaults func() config.Checked) {
	t.Helper()
	file := File(t)
	for _, w := range wrongs {
		t.Run(w.Name, func(t *testing.T) {
			w.check(t, config.Parse(config.Sources{File: "f.yaml"}, []byte(strings.ReplaceAll(w.Text, "FILE", file)), defaults()))
		})
	}
}

// File creates an empty file that configurations can name, and returns its path.
func File(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (w Wrong) check(t *testing.T, err error) {
	t.Helper()
	var all config.Problems
	if !errors.As(err, &all) {
		t.Fatalf("accepted (%v)", err)
	}
	if len(all) != 1 {
		t.Errorf("%d problems, want one:\n%v", len(all), err)
	}
	p := all[0]
	if w.Line > 0 && (p.Line != w.Line || p.Source != "f.yaml") {
		t.Errorf("reported at %s:%d, want line %d", p.Source, p.Line, w.Line)
	}
	if p.Key != w.Key || !strings.Contains(p.Value, w.Value) || !strings.Contains(p.Want, w.Want) || p.Wrong == "" {
		t.Errorf("reported: %v", p)
	}
}
