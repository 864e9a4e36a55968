package api_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
)

// TestTokenFileIsThereWholeOrNotAtAll reads token files as soon as they are there.
func TestTokenFileIsThereWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		file := filepath.Join(dir, fmt.Sprint(i))
		seen := make(chan string)
		go func() {
			for {
				if b, err := os.ReadFile(file); err == nil {
					seen <- string(b)
					return
				}
			}
		}()
		_, _, err := api.LoadToken("local", file)
		if err != nil {
			t.Fatal(err)
		}
		if got := <-seen; !strings.HasSuffix(got, "\n") {
			t.Fatalf("file %d was read as %q", i, got)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 300 {
		t.Errorf("%d files for 300 tokens, %v", len(left), err)
	}
}
