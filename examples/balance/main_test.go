package main

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the program instead of the tests where the test's own program is started under
// the name of the example: it need not be built again.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == name {
		main()
	}
	goleak.VerifyTestMain(m)
}
