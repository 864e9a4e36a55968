package main

import (
	"os"
	"strings"
	"testing"
)

// The code that the page on writing a service shows is that of this example.
func TestPageShowsThisCode(t *testing.T) {
	var code strings.Builder
	for _, file := range []string{"service.go", "main.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(b)
	}
	if lines := strings.Count(code.String(), "\n"); lines > 200 {
		t.Errorf("the example has %d lines; the page says 200", lines)
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
			t.Errorf("not in the example:\n%s", text)
		}
	}
}
