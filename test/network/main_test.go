package network_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/lab/loadgen"
)

func TestMain(m *testing.M) {
	loadgen.Child()
	goleak.VerifyTestMain(m)
}
