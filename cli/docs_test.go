package cli

import (
	"testing"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/clitest"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services"
)

func TestReferenceIsCurrent(t *testing.T) {
	files, err := Reference(services.All())
	clitest.Reference(t, "../docs/reference", "sluice", files, err)
}

func TestManPage(t *testing.T) {
	clitest.ManPage(t, command.ManPage(New(&commands.App{}, services.All()), command.Docs{Files: files}))
}
