package check

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
)

// TestRepository holds this repository to the rules.
func TestRepository(t *testing.T) {
	root := repositoryRoot(t)
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	rules := []struct {
		name string
		run  func() ([]Problem, error)
	}{
		{"layers", func() ([]Problem, error) {
			layers, err := Layers(root)
			return CheckLayers(tree, layers), err
		}},
		{"marks", func() ([]Problem, error) { return CheckMarks(tree), nil }},
		{"yaml", func() ([]Problem, error) { return CheckYAML(tree), nil }},
		{"waits", func() ([]Problem, error) { return CheckWaits(tree), nil }},
		{"timing", func() ([]Problem, error) { return CheckTiming(root, tree) }},
		{"leak-checks", func() ([]Problem, error) { return CheckLeakChecks(tree), nil }},
		{"links", func() ([]Problem, error) { return CheckLinks(root) }},
		{"lists", func() ([]Problem, error) { return CheckLists(root, tree) }},
		{"events", func() ([]Problem, error) { return CheckEvents(root, tree) }},
		{"named", func() ([]Problem, error) { return CheckNamed(root, tree) }},
	}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			problems, err := rule.run()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Error(p)
			}
		})
	}
}

// TestSnippets runs every block that the documentation marks as runnable.
func TestSnippets(t *testing.T) {
	live.Test(t)
	root := repositoryRoot(t)
	snippets, err := Snippets(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(snippets) == 0 {
		t.Fatal("the documentation has no runnable block")
	}
	bin := selfbuild.Programs(t)
	onlyOne(t)
	for path, blocks := range byDocument(snippets) {
		t.Run(path, func(t *testing.T) { runDocument(t, bin, blocks) })
	}
}

// onlyOne waits until no other process runs the documentation's commands: the
// labs in it have fixed names.
func onlyOne(t *testing.T) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "sluice-snippets.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

func byDocument(snippets []Snippet) map[string][]Snippet {
	documents := map[string][]Snippet{}
	for _, s := range snippets {
		documents[s.Path] = append(documents[s.Path], s)
	}
	return documents
}

func runDocument(t *testing.T, bin string, blocks []Snippet) {
	box := &Sandbox{Dir: t.TempDir(), Bin: bin}
	defer box.Close()
	for _, s := range blocks {
		if t.Failed() && !s.Always {
			continue
		}
		// The test's own context is over when it has failed by a time-out.
		if err := box.Run(context.WithoutCancel(t.Context()), s); err != nil {
			t.Error(err)
		}
	}
}

func repositoryRoot(t *testing.T) string {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}
