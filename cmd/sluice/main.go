// Command sluice is all of Sluice: the controller, the agent, the lab, and the
// operator's commands. See "sluice --help".
package main

import (
	"os"

	"github.com/sluice-net/sluice/cli"
)

func main() { os.Exit(cli.Main()) }
