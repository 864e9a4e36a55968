package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services"
	handover "github.com/sluice-net/sluice/services/handover/cli"
)

// etc makes a folder of configurations.
func etc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packaged returns the configurations of the Debian package.
func packaged() map[string]string {
	folders := regexp.MustCompile(`(?m)^(data_dir|state_dir): .*`)
	files := map[string]string{}
	for name, c := range map[string]any{"controller": services.DefaultConfig(), "agent": config.DefaultAgent(), "mobile": handover.DefaultMobile()} {
		files[name+".yaml"] = folders.ReplaceAllString(config.Example(c), "$1: /var/lib/sluice")
	}
	return files
}

// TestExamineFailsOnRolesOnly checks that only the machine's own roles can fail.
func TestExamineFailsOnRolesOnly(t *testing.T) {
	with := func(name, text string) map[string]string {
		files := packaged()
		files[name] = text
		return files
	}
	for name, test := range map[string]struct {
		files    map[string]string
		asked    []string
		roles    []string // all others are notes
		fails    bool
		mentions string
	}{
		"nothing is configured": {},
		"only by the package":   {files: packaged()},
		"a controller":          {files: with("controller.yaml", "log: {level: debug}"), roles: []string{Controller}, mentions: "data folder"},
		"a wrong controller":    {files: with("controller.yaml", "logs: {level: debug}"), roles: []string{Controller}, fails: true, mentions: "configuration"},
		"a wrong agent":         {files: with("agent.yaml", "name: west"), roles: []string{Agent}, fails: true, mentions: "configuration"},
		"a mobile device":       {files: map[string]string{"mobile.yaml": "interfaces: {nowhere0: {}}"}, roles: []string{Mobile}, fails: true, mentions: "interface nowhere0"},
		"asked for, not there":  {asked: []string{Agent}, roles: []string{Agent}, mentions: "configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			all := machine(t, nil, nil).Examine(t.Context(), etc(t, test.files), test.asked)
			needed, failed, mentioned := map[string]bool{}, false, test.mentions == ""
			for _, f := range all {
				if f.Note && (f.Level == Fail || f.Level == Warn) {
					t.Errorf("a note of level %s: %+v", f.Level, f)
				}
				if !f.Note {
					needed[f.For] = true
				}
				failed = failed || f.Level == Fail
				mentioned = mentioned || f.Check == test.mentions
			}
			if len(needed) != len(test.roles) {
				t.Errorf("roles %v, want %v", needed, test.roles)
			}
			for _, r := range test.roles {
				if !needed[r] {
					t.Errorf("roles %v, want %v", needed, test.roles)
				}
			}
			if failed != test.fails || !mentioned {
				t.Errorf("fails: %v, want %v, mentioning %q: %+v", failed, test.fails, test.mentions, all)
			}
		})
	}
}

// TestKeysThatTheUnitCannotRead checks that keys that only root can read are found before the unit
// starts.
func TestKeysThatTheUnitCannotRead(t *testing.T) {
	live.Test(t)
	nobody, err := findAccount("nobody")
	if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "sluice-keys-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.Init(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{Role: pki.RoleAgent, Name: "west"})
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(dir, "west"); err != nil {
		t.Fatal(err)
	}
	a := config.DefaultAgent()
	key := filepath.Join(dir, "west.key")
	a.Control.TLS = config.TLS{Cert: filepath.Join(dir, "west.crt"), Key: key, CA: filepath.Join(dir, pki.CACertFile)}
	all := nobody.reads(t.Context(), Agent, a)
	level(t, all, key, Fail, "chgrp nobody "+key)
	if len(all) != 1 {
		t.Errorf("found %+v, want the key alone", all)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if all := nobody.reads(t.Context(), Agent, a); len(all) != 0 {
		t.Errorf("found %+v, want nothing", all)
	}
}
