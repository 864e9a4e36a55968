package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// line is an event of a test, or of its package if the test has no name.
func line(action, test, output string) string {
	return fmt.Sprintf(`{"Action":%q,"Package":"example.org/m/lab","Test":%q,"Output":%q}`+"\n", action, test, output)
}

func TestVerdict(t *testing.T) {
	pass := line("pass", "TestA", "") + line("pass", "", "")
	fail := line("output", "TestA/one", "it broke\n") + line("fail", "TestA/one", "") + line("fail", "TestA", "") + line("fail", "", "")
	skipped := line("output", "TestB/x", "    b_test.go:7: no such kernel\n") + line("skip", "TestB/x", "") + pass
	cases := []struct {
		name       string
		runs       []string // what go test writes, one time after the other
		skips      list
		quarantine list
		lax        bool
		ok         bool
		says       []string
	}{
		{name: "all is well", runs: []string{pass}, ok: true, says: []string{"1 passed, 0 failed"}},
		{name: "a failure is not run again", runs: []string{fail}, says: []string{"it broke", "FAILED: lab.TestA/one"}},
		{name: "another test is in quarantine", runs: []string{fail}, quarantine: list{"lab.TestAll": "x"}, says: []string{"it broke"}},
		{name: "quarantine", runs: []string{fail, pass}, quarantine: list{"lab.TestA": "fails on Tuesdays"}, ok: true, says: []string{"it broke", "QUARANTINE: lab.TestA failed", "fails on Tuesdays", "FAILED: lab.TestA/one"}},
		{name: "a part in quarantine", runs: []string{fail, pass}, quarantine: list{"lab.TestA/one": "x"}, ok: true},
		{name: "another part in quarantine", runs: []string{fail}, quarantine: list{"lab.TestA/two": "x"}},
		{name: "quarantine fails again", runs: []string{fail, fail}, quarantine: list{"lab.TestA": "x"}, says: []string{"it broke"}},
		{
			name: "a race is never run again", runs: []string{line("output", "TestA", "WARNING: DATA RACE\n") + line("fail", "TestA", "") + line("fail", "", "")},
			quarantine: list{"lab.TestA": "x"}, says: []string{"DATA RACE"},
		},
		{
			name: "a package that ends by itself", runs: []string{line("output", "", "panic: out of luck\n") + line("fail", "", "")},
			quarantine: list{"lab.TestA": "x"}, says: []string{"out of luck", "FAILED: lab"},
		},
		{
			name: "a test that hangs", runs: []string{pass[:len(pass)-len(line("pass", "", ""))] + line("output", "TestHang", "panic: test timed out\n") + line("fail", "", "")},
			quarantine: list{"lab.TestHang": "x"}, says: []string{"test timed out", "FAILED: lab.TestHang"},
		},
		{name: "a skip that is not listed", runs: []string{skipped}, says: []string{"SKIPPED: lab.TestB/x: b_test.go:7: no such kernel", ".ci/skips"}},
		{name: "not in CI", runs: []string{skipped}, lax: true, ok: true, says: []string{"SKIPPED: lab.TestB/x"}},
		{name: "a skip that is listed", runs: []string{skipped}, skips: list{"lab.TestB": "old kernels"}, ok: true, says: []string{"allowed: old kernels"}},
		{name: "what is no event", runs: []string{"go: downloading\n" + pass}, ok: true, says: []string{"go: downloading"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			var asked [][]string
			s := suite{out: &out, module: "example.org/m", skips: c.skips, quarantine: c.quarantine, strict: !c.lax, test: func(args []string, events func(io.Reader) error) error {
				asked = append(asked, args)
				return events(strings.NewReader(c.runs[len(asked)-1]))
			}}
			ok, err := s.run([]string{"-race", "-p", "2", "-run", "Test", "./lab"})
			if err != nil || ok != c.ok || len(asked) != len(c.runs) {
				t.Errorf("%v, %v after %v:\n%s", ok, err, asked, out.String())
			}
			if len(asked) > 1 && strings.Join(asked[1], " ") != "-race -p 2 -count=1 -run ^TestA$ example.org/m/lab" {
				t.Errorf("run again by %v", asked[1])
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("does not say %q:\n%s", want, out.String())
				}
			}
		})
	}
	s := suite{out: io.Discard, test: func([]string, func(io.Reader) error) error { return nil }}
	if ok, err := s.run(nil); ok || err == nil {
		t.Errorf("nothing has run, and that is well: %v", err)
	}
}

func TestList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	write := func(text string) (list, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return readList(file)
	}
	l, err := write("# what they are\n\nlab.TestA   needs netem\nlab.TestB/one needs luck\n")
	if err != nil || len(l) != 2 {
		t.Fatalf("%v, %v", l, err)
	}
	for test, want := range map[string]string{"lab.TestA": "needs netem", "lab.TestA/x/y": "needs netem", "lab.TestAB": "", "lab.TestB": "", "lab.TestB/one/x": "needs luck", "a/lab.TestA": ""} {
		if got, listed := l.reason(test); got != want || listed != (want != "") {
			t.Errorf("%s: %q, %v", test, got, listed)
		}
	}
	for _, bad := range []string{"lab.TestA\n", "lab needs luck\n"} {
		if _, err := write(bad); err == nil || !strings.Contains(err.Error(), ":1:") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if l, err := readList(file + "-gone"); err != nil || len(l) != 0 {
		t.Errorf("%v, %v", l, err)
	}
}

// What go test really writes of a test that fails and of a package that does not compile.
func TestGoTest(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n", "bad/bad_test.go": "package bad\n\nvar x int = \"no\"\n",
		"lab/a_test.go": "package lab\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Run(\"one\", func(t *testing.T) { t.Error(\"it broke\") }) }\n\nfunc TestB(t *testing.T) { t.Skip(\"not here\") }\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CI", "true")
	t.Setenv("GOFLAGS", "")
	var out bytes.Buffer
	if ok, err := run(&out, []string{"./..."}); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	for _, want := range []string{"FAILED: lab.TestA/one\n", "FAILED: lab.TestA\n", "FAILED: bad\n", "it broke", "cannot use \"no\"", "SKIPPED: lab.TestB: a_test.go:7: not here", "2 packages"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("does not say %q:\n%s", want, out.String())
		}
	}
}
