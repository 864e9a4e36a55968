package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestContextsAreRefusedWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "contexts.yaml")
	for text, want := range map[string]string{
		"contexts: {a: {server: 'https://a:1', colour: red}}":     `contexts.yaml:1: contexts.a.colour: unknown key: known here: server`,
		"contexts:\n  a: {server: a}":                             `contexts.yaml:2: contexts.a.server: "a": not a URL`,
		"contexts:\n  a: {}":                                      `contexts.yaml:2: contexts.a.server: not a URL`,
		"contexts:\n  a: {server: 'https://a:1', cert: x}":        `cert and key belong together`,
		"contexts:\n  a/b: {server: 'https://a:1'}":               `contexts.a/b: not a name`,
		"current: b\ncontexts:\n  a: {server: 'https://a:1'}":     `contexts.yaml:1: current: "b": no such context: one of a`,
		"contexts:\n  a: {server: 'https://a:1'}\n  a: {}":        `given twice`,
		"contexts: {a: {server: 'https://a:1'}}\n---\ncurrent: a": `second document`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := LoadContexts(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v, %v, want %q", text, c, err, want)
		}
	}
}

// TestContextsFile checks that names of files are relative to the folder of the contexts, and that
// only a regular file is replaced.
func TestContextsFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "contexts.yaml")
	if err := os.WriteFile(file, []byte("contexts: {a: {server: 'https://a:1', ca: ca.crt, token_file: /t}}"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	c, err := LoadContexts(link)
	if err != nil {
		t.Fatal(err)
	}
	c.Current = "a"
	if err := c.Write(); err != nil {
		t.Fatal(err)
	}
	again, err := LoadContexts(file)
	if err != nil {
		t.Fatal(err)
	}
	a, err := again.Get("a")
	if err != nil || again.Current != "a" || a.CA != filepath.Join(dir, "ca.crt") || a.TokenFile != "/t" || a.Cert != "" {
		t.Errorf("read back: %+v, current %q, %v", a, again.Current, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v %v", info, err)
	}
	for _, name := range []string{os.DevNull, dir, ""} {
		if err := (&Contexts{file: name}).Write(); err == nil {
			t.Errorf("%q was replaced", name)
		}
	}
}
