package datapath_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		runChild()
		return
	}
	goleak.VerifyTestMain(m)
}
