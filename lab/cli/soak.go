package cli

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/lab/soak"
)

func soakCommand(a *app) *cobra.Command {
	var o soak.Options
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Run all services under load for minutes while programs are killed (root)",
		Long: `Builds a network on this machine with SOS, handover and QoS in it, and runs short
connections, long transfers, a moving device, a class and critical flows at once,
while links flap and programs of every kind are killed: the controller, an agent,
the mobile device's daemon, a switch's daemon, a classifier. Every byte is checked.

It fails if a failure is not explained by a kill, if the switches' rules are not
those of the controller's ledger at the end, or if memory or goroutines grow. The
order of the kills follows from the seed, which is printed. In the last two fifths
of the time nothing is killed. Ctrl-C ends it and removes what it has built.`,
		Example: "  sluice-lab soak --time 2m --seed 7",
		Args:    command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Time < soak.MinTime || o.Time > soak.MaxTime {
				return &command.UsageError{Err: fmt.Errorf("--time must be between %v and %v", soak.MinTime, soak.MaxTime)}
			}
			for _, kind := range o.Kill {
				if !slices.Contains(soak.Kinds(), kind) {
					return &command.UsageError{Err: fmt.Errorf("--kill %s: want some of %s", kind, strings.Join(soak.Kinds(), ","))}
				}
			}
			if !cmd.Flags().Changed("seed") {
				o.Seed = rand.Uint64N(1_000_000)
			}
			var err error
			if o.Binary, o.Lab, err = a.programs(); err != nil {
				return err
			}
			o.Log = a.Out
			return soak.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.Time, "time", 10*time.Minute, "how long the loads run")
	f.Uint64Var(&o.Seed, "seed", 0, "determines the order of the kills (default random)")
	f.StringSliceVar(&o.Kill, "kill", nil, "kill only these kinds of programs: "+strings.Join(soak.Kinds(), ", "))
	f.StringVar(&o.Out, "out", filepath.Join("out", "soak"), "folder for the programs' logs")
	return cmd
}
