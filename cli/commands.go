package cli

import "github.com/spf13/cobra"

// commands is the list of the program's commands.
func commands(app *App) []*cobra.Command {
	return []*cobra.Command{
		controllerCommand(app),
		agentCommand(app),
		mobileCommand(app),
		classifierCommand(app),
		hostCommand(app),
		networkCommand(app),
		pathCommand(app),
		sosCommand(app),
		handoverCommand(app),
		qosCommand(app),
		cinemaCommand(app),
		mfCommand(app),
		storeCommand(app),
		statusCommand(app),
		eventsCommand(app),
		contextCommand(app),
		configCommand(app),
		pkiCommand(app),
		doctorCommand(app),
	}
}
