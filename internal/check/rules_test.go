package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree writes a module into a folder and loads it.
func tree(t *testing.T, files map[string]string) *Tree {
	t.Helper()
	root := t.TempDir()
	write(t, root, "go.mod", "module example.org/m\n\ngo 1.26\n")
	for name, text := range files {
		write(t, root, name, text)
	}
	loaded, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, got []Problem, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d problems, want %d:\n%v", len(got), len(want), got)
	}
	for i, w := range want {
		if !strings.Contains(got[i].String(), w) {
			t.Errorf("problem %d is %q, want it to contain %q", i, got[i], w)
		}
	}
}

func TestLayers(t *testing.T) {
	layers := []Layer{
		{Dir: "low"},
		{Dir: "mid", May: []string{"low"}, Tests: []string{"lab"}},
		{Dir: "mid/pure"},
		{Dir: "svc", May: []string{"mid"}, Only: []string{"api"}},
		{Dir: "api"},
		{Dir: "lab"},
	}
	importing := func(pkg, path string) string {
		return "package " + pkg + "\n\nimport _ \"example.org/m/" + path + "\"\n"
	}
	cases := []struct{ name, file, text, want string }{
		{"downwards", "mid/a.go", importing("mid", "low"), ""},
		{"upwards", "low/a.go", importing("low", "mid"), "low/a.go:3: low must not import mid"},
		{"into its own part", "mid/a.go", importing("mid", "mid/pure"), ""},
		{"out of a part", "mid/pure/a.go", importing("pure", "mid"), "mid/pure must not import mid"},
		{"below its own folder", "mid/x/a.go", importing("x", "mid/y"), ""},
		{"like-named folder", "svc/a.go", importing("svc", "middle"), "svc must not import middle"},
		{"only the folder itself", "svc/a.go", importing("svc", "api"), ""},
		{"not what lies below it", "svc/a.go", importing("svc", "api/client"), "svc must not import api/client"},
		{"test may", "mid/a_test.go", importing("mid", "lab"), ""},
		{"code may not", "mid/a.go", importing("mid", "lab"), "mid must not import lab"},
		{"internal for all", "low/a.go", importing("low", "internal/x"), ""},
		{"off the map", "new/a.go", "package x\n", "not on the map"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := CheckLayers(tree(t, map[string]string{c.file: c.text}), layers)
			if c.want == "" {
				expect(t, got)
			} else {
				expect(t, got, c.want)
			}
		})
	}
}

func TestMarks(t *testing.T) {
	loaded := tree(t, map[string]string{
		"c.go": "package p\n\n// TO" + "DO: later\nvar x = \"/wo" + "rk/main\"\n",
		"d.go": "package p\n\n// worker/root/x and a/home/x are no machine's paths; TODOS is no note\n",
	})
	expect(t, CheckMarks(loaded), "c.go:3: note", "c.go:4: path")
}

func TestWaits(t *testing.T) {
	cases := []struct {
		name, body string
		sleeps     bool
	}{
		{"sleep", "time.Sleep(1)", true},
		{"sleep of ours", "_ = tasks.Sleep(ctx, 1)", true},
		{"after", "<-time.After(1)", true},
		{"timer", "x := time.NewTimer(1)\n<-x.C", true},
		{"select of one", "select {\ncase <-time.After(1):\n}", true},
		{"within a select", "select {\ncase <-c:\n<-time.After(1)\ncase <-d:\n}", true},
		{"deadline", "select {\ncase <-c:\ncase <-time.After(1):\n}", false},
		{"poll", "x := time.NewTicker(1)\nfor !done() {\n<-x.C\n}", false},
		{"a reason", "pause.For(1, \"the lease ends\")", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := CheckWaits(tree(t, map[string]string{"a_test.go": "package p\n\nfunc f() {\n" + c.body + "\n}\n", "a.go": "package p\n\nfunc g() { time.Sleep(1) }\n"}))
			if c.sleeps {
				expect(t, got, "a test that sleeps")
			} else {
				expect(t, got)
			}
		})
	}
}

func TestLeakChecks(t *testing.T) {
	starts := "package p\n\nfunc f() { go f() }\n"
	loaded := tree(t, map[string]string{
		"a/a.go": starts,
		"b/b.go": starts, "b/b_test.go": "package p\n\nfunc TestMain() { goleak.VerifyTestMain(nil) }\n",
		"c/c.go": "package p\n",
	})
	expect(t, CheckLeakChecks(loaded), "a: starts goroutines")
}

func TestLinks(t *testing.T) {
	root := t.TempDir()
	write(t, root, "docs/there.md", "# there\n")
	write(t, root, "README.md", "[a](docs/there.md#part) [b](https://example.org/x) [c](#here)\n![d](docs/gone.svg)\n")
	got, err := CheckLinks(root)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, "README.md:2: link to docs/gone.svg")
}

func TestNamed(t *testing.T) {
	root := t.TempDir()
	write(t, root, "README.md", "It holds (`a/b.TestThere`).\nSo does this (`a/b.TestGone`, `a.TestThere`).\nIt is in `a/b/b_test.go`, not in `a/b/gone.go`.\nSee `a/b/b_test.go:TestThere`, `a/b/b_test.go:Does` and `a/b/b_test.go:Gone`.\n")
	loaded := tree(t, map[string]string{"a/b/b_test.go": "package b\n\nfunc TestThere() {}\n\ntype doer interface{ Does() }\n"})
	got, err := CheckNamed(root, loaded)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, "README.md:2: there is no test TestGone in a/b", "README.md:2: there is no test TestThere in a", "README.md:3: there is no file a/b/gone.go", "README.md:4: there is no function Gone in a/b/b_test.go")
}

func TestLists(t *testing.T) {
	root := t.TempDir()
	write(t, root, ".ci/skips", "# why\n\na/b.TestThere  needs luck\na/b.TestThere/part needs luck\na/b.TestGone needs luck\n")
	write(t, root, ".ci/unreliable", "a/b.TestThere\n"+strings.Repeat("a/b.TestThere 2026-01-31 is slow\n", mostUnreliable))
	loaded := tree(t, map[string]string{"a/b/b_test.go": "package b\n\nfunc TestThere() {}\n"})
	got, err := CheckLists(root, loaded)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, ".ci/skips:5: there is no test a/b.TestGone", ".ci/unreliable:1: no reason for a/b.TestThere", ".ci/unreliable:1: no date for a/b.TestThere", ".ci/unreliable:11: more than 10 tests")
}

func TestTiming(t *testing.T) {
	cases := []struct {
		name, body string
		timed      bool
	}{
		{"elapsed time", "if time.Since(began) > time.Second {\nt.Error(1)\n}", true},
		{"a variable", "took := time.Since(began)\nif ok && took >= bound {\nt.Errorf(`%v`, took)\n}", true},
		{"a method's test", "if time.Since(began) > time.Second {\nw.t.Fatal(1)\n}", true},
		{"a rate", "if got < 0.9*want {\nt.Errorf(`%.0f Mbit/s`, got)\n}", true},
		{"a share", "if got < want {\nt.Errorf(`only %d%%`, got)\n}", true},
		{"a deadline", "if time.Since(began) > 30*time.Second {\nt.Fatal(1)\n}", false},
		{"a deadline of minutes", "if time.Since(began) > 2*time.Minute {\nt.Fatal(1)\n}", false},
		{"a short deadline", "if time.Since(began) > 5*time.Second {\nt.Fatal(1)\n}", true},
		{"too early", "if time.Since(began) < time.Second {\nt.Error(1)\n}", false},
		{"a count", "if got < 5 {\nt.Errorf(`%d packets`, got)\n}", false},
		{"logged only", "if time.Since(began) > time.Second {\nt.Log(1)\n}", false},
		{"the fake clock", "synctest.Test(t, func(t *testing.T) {\nif time.Since(began) > time.Second {\nt.Error(1)\n}\n})", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			loaded := tree(t, map[string]string{"a/a_test.go": "package a\n\nfunc TestIt(t *testing.T) {\n" + c.body + "\n}\n\nfunc BenchmarkIt(t *testing.B) {\n" + c.body + "\n}\n"})
			check := func(list string) []Problem {
				root := t.TempDir()
				write(t, root, timingList, list)
				got, err := CheckTiming(root, loaded)
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			if !c.timed {
				expect(t, check(""))
				expect(t, check("a.TestIt is slow\n"), timingList+":1: a.TestIt needs no exception")
				return
			}
			expect(t, check(""), "a test that fails when the machine is slow")
			expect(t, check("a.TestIt is about time\n"))
		})
	}
}

func TestYAML(t *testing.T) {
	text := "package p\n\nfunc f() { yaml.Unmarshal(nil, nil); yaml.NewDecoder(nil) ; yaml.Marshal(nil) }\n"
	loaded := tree(t, map[string]string{"a/a.go": text, "a/a_test.go": text, "internal/strictyaml/a.go": text})
	expect(t, CheckYAML(loaded), "a/a.go:3", "a/a.go:3")
}

func TestEvents(t *testing.T) {
	root := t.TempDir()
	write(t, root, "docs/reference/events.md", "| `sos.session.ended` | It is over. |\n| `sos.ready` | It is. |\n| `qos.flow.moved` | It is. |\n")
	write(t, root, "dashboard/src/events/services.ts", "  \"sos.session.ended\": (a) => ``,\n  \"sos.session.lost\": (a) => ``,\n")
	loaded := tree(t, map[string]string{
		"services/sos/a.go":      "package p\n\nfunc f() { s.publish(\"session.ended\", nil); s.publish(\"ended\", nil) }\n",
		"services/sos/b.go":      "package p\n\nfunc f() { s.publish(\"flow.moved\", nil) }\n",
		"services/sos/b_test.go": "package p\n\nfunc g() { s.publish(\"flow.whatever\", nil) }\n",
		"hub/a.go":               "package p\n\nfunc f() { b.Publish(\"qos.flow.moved\", nil); b.Publish(kind, nil); b.Publish(\"qos.flow.lost\", nil) }\n",
	})
	got, err := CheckEvents(root, loaded)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, "events.md:2: the kind sos.ready", `hub/a.go:3: the event "qos.flow.lost"`, `services/sos/b.go:3: the event "flow.moved"`, "services.ts: words for the event sos.session.lost")
}
