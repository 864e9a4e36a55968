package commands

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
)

// ConfigFlags holds the flags of a command that reads a configuration.
type ConfigFlags struct {
	// File is the configuration file. Set holds settings, each KEY=VALUE, that override the file
	// and the environment.
	File string
	Set  []string
}

// Register defines the flags --config and --set on a command.
func (f *ConfigFlags) Register(cmd *cobra.Command) {
	command.EnvFlag(cmd.Flags(), &f.File, "config", "c", "SLUICE_CONFIG", "", "configuration file, YAML")
	f.RegisterSet(cmd)
}

// RegisterSet defines the flag --set alone.
func (f *ConfigFlags) RegisterSet(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.Set, "set", nil, "a setting KEY=VALUE that overrides the file and the environment; may be repeated")
}

// Sources returns the sources of the configuration: the file, the environment and the flags.
func (f *ConfigFlags) Sources() config.Sources {
	return config.Sources{File: f.File, Env: os.Environ(), Set: f.Set}
}
