// Command sluice is the program that runs in a network: the controller, the agents and daemons
// beside it, and the operator's commands. See "sluice --help".
package main

import (
	"os"

	"github.com/sluice-net/sluice/cli"
	"github.com/sluice-net/sluice/services"
)

func main() { os.Exit(cli.Main(services.All())) }
