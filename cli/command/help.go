package command

import "github.com/spf13/cobra"

const exitCodes = `0  done
1  something went wrong
2  the command line is wrong
3  the controller refused the request
4  no controller answered`

// exitCodesTopic is a page of the help.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the program's exit codes mean",
		Long:  "The program ends with one of these codes:\n\n" + exitCodes + "\n\nCommands that run another program, like \"sluice-lab exec\", end with its code.",
	}
}
