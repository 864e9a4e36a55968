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

// sluice runs a command line and returns its exit code and what it wrote.
func sluice(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	return commandstest.Run(t.Context(), Service().Commands, args...)
}
