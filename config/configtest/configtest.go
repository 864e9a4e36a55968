// Package configtest tries wrong configurations.
package configtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/config"
)

// Wrong is a wrong configuration, and what the refusal must name.
type Wrong struct {
	Name string
	// Text is the configuration; FILE in it stands for a file that is there.
	Text string
	// Line is where the problem is reported; 0 for anywhere.
	Line int
	Key  string
	// Value is part of what is shown as given, and Want part of what would be right.
	Value, Want string
}

// Refuses fails the test unless each configuration is refused for one problem, as it says.
func Refuses(t *testing.T, wrongs []Wrong, defaults func() config.Checked) {
	t.Helper()
	file := File(t)
	for _, w := range wrongs {
		t.Run(w.Name, func(t *testing.T) {
			w.check(t, config.Parse(config.Sources{File: "f.yaml"}, []byte(strings.ReplaceAll(w.Text, "FILE", file)), defaults()))
		})
	}
}

// File makes a file for configurations to name.
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
