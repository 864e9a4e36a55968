// Command sluice-lab builds networks on one machine and runs Sluice in them: the lab,
// demonstrations, experiments and soaks. See "sluice-lab --help".
package main

import (
	"os"

	"github.com/sluice-net/sluice/lab/cli"
)

func main() { os.Exit(cli.Main()) }
