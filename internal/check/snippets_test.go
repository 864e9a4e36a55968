package check

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseSnippets(t *testing.T) {
	text := strings.Join([]string{
		"```sh", "not run", "```",
		"```sh runnable", "echo one", "```",
		"1. item", "", "   ```sh runnable root always", "   echo two", "     deeper", "   ```",
		"````", "```sh runnable", "only shown", "```", "````",
		"```sh on west east", "echo there", "```", "",
	}, "\n")
	got, err := parseSnippets("a.md", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Snippet{
		{Path: "a.md", Line: 5, Text: "echo one\n"},
		{Path: "a.md", Line: 10, Root: true, Always: true, Text: "echo two\n  deeper\n"},
		{Path: "a.md", Line: 19, On: []string{"west", "east"}, Text: "echo there\n"},
	}
	if len(got) != len(want) {
		t.Fatalf("got %d snippets, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("snippet %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestParseSnippetsRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"```sh runnable rooot\n```\n":  `unknown option "rooot"`,
		"```sh runnable\necho one\n":   "never closed",
		"text\n```yaml\nnever: shut\n": "never closed",
	} {
		if _, err := parseSnippets("a.md", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestSandbox(t *testing.T) {
	box := &Sandbox{Dir: t.TempDir(), Bin: t.TempDir()}
	defer box.Close()
	if err := box.Run(t.Context(), Snippet{Text: "echo hello >file\nsleep 60 &\necho $! >pid\n"}); err != nil {
		t.Fatal(err)
	}
	if err := box.Run(t.Context(), Snippet{Text: "grep hello file\nkill -0 $(cat pid)\n"}); err != nil {
		t.Errorf("a later block does not see an earlier one's file or process: %v", err)
	}
	err := box.Run(t.Context(), Snippet{Path: "a.md", Line: 7, Text: "false | cat\necho unreached\n"})
	if err == nil || !strings.HasPrefix(err.Error(), "a.md:7: ") {
		t.Errorf("a failing block gives %v, want an error at a.md:7", err)
	}
	if err != nil && strings.Contains(strings.SplitN(err.Error(), "--- output", 2)[1], "unreached") {
		t.Error("the block went on after a command that failed")
	}
	box.Close()
	if err := box.Run(t.Context(), Snippet{Text: "while kill -0 $(cat pid); do :; done\n"}); err != nil {
		t.Errorf("a background process outlives its document: %v", err)
	}
}
