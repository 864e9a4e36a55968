package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/lab/experiment"
)

func experimentCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "experiment",
		Short: "Repeat published measurements on this machine",
		Long: `Repeats published measurements on this machine, and those that Sluice's claims
rest on. Each experiment builds its own network, runs real programs in it,
and writes raw measurements (CSV), plots (SVG, PNG) and one HTML report with the
published figures beside those measured here.`,
	}
	cmd.AddCommand(experimentListCommand(a), experimentRunCommand(a))
	return cmd
}

func experimentListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the experiments",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			type row struct {
				Name     string `json:"name"`
				Title    string `json:"title"`
				Question string `json:"question"`
				Source   string `json:"source,omitempty"`
			}
			var rows []row
			for _, e := range experiment.All() {
				rows = append(rows, row{e.Name, e.Title, e.Question, e.Source})
			}
			return a.Print(rows, func(w io.Writer) {
				for _, r := range rows {
					fmt.Fprintf(w, "%s\t%s\n", r.Name, r.Title)
				}
			})
		},
	}
}

func experimentRunCommand(a *app) *cobra.Command {
	var (
		run   experimentRun
		quick bool
	)
	cmd := &cobra.Command{
		Use:   "run NAME...",
		Short: "Run experiments (root)",
		Long: `Runs experiments one after another; "all" selects every one. Scales: quick (a minute
or two each, rough figures), normal, full (the whole published range of parameters;
may take an hour). The claims of several experiments are listed together at the end.
The exit status is 1 if a claim was missed, at any scale, or an experiment failed or tested
no claim although nothing was left out (--only); the others still run.
Ctrl-C ends the experiment and removes what it has built; measurements made so far are
kept.`,
		Example: `  sluice-lab experiment run sos-peers --scale quick --out out/sos-peers
  sluice-lab experiment run all --quick`,
		Args: command.AtLeast("NAME"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			names := []string{everyExperiment + "\tevery experiment"}
			for _, e := range experiment.All() {
				names = append(names, e.Name+"\t"+e.Title)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if quick {
				run.scale = string(experiment.Quick)
			}
			return run.run(cmd.Context(), a, args)
		},
	}
	cmd.Flags().StringVar(&run.scale, "scale", string(experiment.Normal), "quick, normal or full")
	cmd.Flags().BoolVar(&quick, "quick", false, "short for --scale quick")
	cmd.MarkFlagsMutuallyExclusive("scale", "quick")
	cmd.Flags().StringVar(&run.out, "out", "", "folder for the output (default out/NAME); each of several experiments has a folder of its own in it")
	cmd.Flags().StringArrayVar(&run.only, "only", nil, "restrict a parameter of the experiment, like rtt=50ms,100ms; may be repeated; only for one experiment")
	return cmd
}
