package strictyaml

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestWrongFiles(t *testing.T) {
	laughs := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		laughs += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", 'b'+i, 'b'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i, 'a'+i)
	}
	for name, c := range map[string]struct{ text, says string }{
		"syntax":          {"a: [", "f.yaml:1: not readable as YAML"},
		"syntax later":    {"a: 1\nb: c: d\n", "f.yaml:2: not readable as YAML"},
		"second document": {"a: 1\n---\nb: 1\n", "f.yaml:2: a second document"},
		"second broken":   {"a: 1\n---\n[\n", "not readable as YAML"},
		"list":            {"- a\n", "f.yaml:1: not a mapping"},
		"word":            {"hello\n", "not a mapping"},
		"twice":           {"a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", "f.yaml:5: b.c: given twice: keep one of the two (the first is in line 3)"},
		"twice in a list": {"a:\n  - {b: 1, b: 2}\n", "f.yaml:2: a[0].b: given twice"},
		"alias":           {"a: &x {b: 1}\nc: *x\n", "f.yaml:2: c: an alias: write out what *x stands for"},
		"laughs":          {laughs, "an alias"},
		"itself":          {"a: &a [*a]\n", "an alias"},
		"complex key":     {"? [a, b]\n: 1\n", "f.yaml:1: a key that is not a single word"},
		"depth":           {"a: " + strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), "more than 32 levels"},
		"great depth":     {"a: " + strings.Repeat("[", 1<<20), "f.yaml"},
		"many values":     {"a: [" + strings.Repeat("1,", MaxNodes) + "]", "more than 524288 values"},
		"size":            {strings.Repeat("#", MaxBytes+1), "larger than 4 MiB"},
		"many twice":      {strings.Repeat("a: 1\n", 10_000), "given twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := Parse("f.yaml", []byte(c.text))
			if len(problems) == 0 || !strings.Contains(problems.Error(), c.says) || len(problems) > maxTold+1 {
				t.Errorf("says %.300v, want %q", problems, c.says)
			}
		})
	}
	for _, nothing := range []string{"", "# a note\n", "---\n", "~\n"} {
		if root, problems := Parse("f.yaml", []byte(nothing)); len(problems) > 0 || root.Kind != yaml.MappingNode || len(root.Content) > 0 {
			t.Errorf("%q: %v", nothing, problems)
		}
	}
}

func TestReadFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f.yaml")
	if _, err := ReadFile(name); !os.IsNotExist(err) {
		t.Error(err)
	}
	for size, ok := range map[int]bool{MaxBytes: true, MaxBytes + 1: false} {
		if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := ReadFile(name); (err == nil) != ok || ok && len(text) != size {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"listen", "level", "Format"}
	for key, want := range map[string]string{
		"lisen": `did you mean "listen"?`, "LEVEL": `did you mean "level"?`, "format": `did you mean "Format"?`,
		"colour": "known here: listen, level, Format", strings.Repeat("l", 1<<20): "known here: listen, level, Format",
	} {
		if got := Suggest(key, known); got != want {
			t.Errorf("%.20s: %q, want %q", key, got, want)
		}
	}
}

func TestValue(t *testing.T) {
	for text, ok := range map[string]bool{"1": true, "[a, b]": true, "{a: 1, a: 2}": false, "[": false, "": false, "[&a 1, *a]": false} {
		if _, got := Value(text); got != ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// FuzzParse: problems that say where and what, or a tree within the bounds.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a: 1\n", "a: &x [1]\nb: *x\n", "a: {b: 1, b: 2}\n", "? {a: 1}\n: 2\n", "a: [[[[1]]]]\n---\n", "<<: {a: 1}\n", "a: !!binary x\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		root, problems := Parse("f.yaml", text)
		for _, p := range problems {
			if p.Wrong == "" || p.Line < 0 || !strings.HasPrefix(p.String(), "f.yaml") {
				t.Errorf("%+v", p)
			}
		}
		if root == nil {
			if len(problems) == 0 {
				t.Error("neither a tree nor a problem")
			}
			return
		}
		nodes := 0
		var walk func(n *yaml.Node, depth int)
		walk = func(n *yaml.Node, depth int) {
			if nodes++; nodes > 2*MaxNodes || depth > MaxDepth || n.Kind == yaml.AliasNode || n.Alias != nil {
				t.Fatalf("%d nodes, depth %d, %+v", nodes, depth, n)
			}
			keys := map[string]bool{}
			for i, e := range n.Content {
				if n.Kind == yaml.MappingNode && i%2 == 0 {
					if e.Kind != yaml.ScalarNode || keys[e.Value] && len(problems) == 0 {
						t.Fatalf("key %+v", e)
					}
					keys[e.Value] = true
				}
				walk(e, depth+1)
			}
			_ = Show(n)
		}
		walk(root, 0)
	})
}
