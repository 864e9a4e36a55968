package main

import (
	"os"
	"strings"
	"testing"
)

// TestPageShowsThisCode checks that the code on the page on writing a service is that of this
// example, or of the one beside it.
func TestPageShowsThisCode(t *testing.T) {
	var code strings.Builder
	lines := 0
	for _, file := range []string{"service.go", "main.go", "../balance/service.go", "../balance/connections.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(file, "..") {
			lines += strings.Count(string(b), "\n")
		}
		code.Write(b)
	}
	if lines > 220 {
		t.Errorf("the example has %d lines; the page says some 200", lines)
	}
	page, err := os.ReadFile("../../docs/how-to/write-a-service.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) < 6 {
		t.Errorf("%d blocks of code", len(blocks))
	}
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		if !strings.Contains(code.String(), text) {
			t.Errorf("not in the examples:\n%s", text)
		}
	}
}
