package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/kit/commands"
)

// own returns the commands that belong to no service.
func own(app *commands.App, services []commands.Service) []*cobra.Command {
	return []*cobra.Command{
		controllerCommand(app, services),
		networkCommand(app),
		pathCommand(app),
		storeCommand(app),
		statusCommand(app),
		eventsCommand(app),
		commands.ContextCommand(app),
		configCommand(app, commands.Kinds(services)),
		pkiCommand(app),
		doctorCommand(app),
	}
}
