package cli

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/kit/commands/commandstest"
)

func TestMain(m *testing.M) {
	commandstest.ClearEnvironment()
	goleak.VerifyTestMain(m)
}
