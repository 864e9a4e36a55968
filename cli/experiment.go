package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/experiment"
)

func experimentCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "experiment",
		Short: "Repeat published measurements on this machine",
		Long: `Repeats published measurements, and those that Sluice is held to, on a lab of
this machine. Each experiment builds its own network, runs real programs in it,
and writes raw measurements (CSV), plots (SVG, PNG) and one HTML report with the
published figures beside those measured here.`,
	}
	cmd.AddCommand(experimentListCommand(app), experimentRunCommand(app))
	return cmd
}

func experimentListCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the experiments",
		Args:  cobra.NoArgs,
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
			return app.Print(rows, func(w io.Writer) {
				for _, r := range rows {
					fmt.Fprintf(w, "%s\t%s\n", r.Name, r.Title)
				}
			})
		},
	}
}

func experimentRunCommand(app *App) *cobra.Command {
	var (
		scale string
		quick bool
		out   string
		only  []string
	)
	cmd := &cobra.Command{
		Use:   "run NAME",
		Short: "Run one experiment (root)",
		Long: `Runs one experiment. Scales: quick (a minute or two, rough figures), normal,
full (the whole published range of parameters; may take an hour). Ctrl-C ends the
experiment and removes what it has built; measurements made so far are kept.`,
		Example: "  sluice experiment run sos-peers --scale quick --out out/sos-peers",
		Args:    cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, e := range experiment.All() {
				names = append(names, e.Name+"\t"+e.Title)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if quick {
				scale = string(experiment.Quick)
			}
			return runExperiment(cmd.Context(), app, args[0], scale, out, only)
		},
	}
	cmd.Flags().StringVar(&scale, "scale", string(experiment.Normal), "quick, normal or full")
	cmd.Flags().BoolVar(&quick, "quick", false, "short for --scale quick")
	cmd.MarkFlagsMutuallyExclusive("scale", "quick")
	cmd.Flags().StringVar(&out, "out", "", "folder for the output (default out/NAME)")
	cmd.Flags().StringArrayVar(&only, "only", nil, "restrict what the experiment varies, like rtt=50ms,100ms; may be repeated")
	return cmd
}

func runExperiment(ctx context.Context, app *App, name, scale, out string, only []string) error {
	e, err := experiment.Find(name)
	if err != nil {
		return &UsageError{err}
	}
	s, err := experiment.ParseScale(scale)
	if err != nil {
		return &UsageError{fmt.Errorf("--scale: %w", err)}
	}
	restricted, err := experiment.ParseOnly(e, only)
	if err != nil {
		return &UsageError{fmt.Errorf("--only: %w", err)}
	}
	if out == "" {
		out = filepath.Join("out", name)
	}
	log := app.Out
	if app.JSON {
		log = app.Err
	}
	result, err := experiment.Run(ctx, e, experiment.Options{Scale: s, Only: restricted, Out: out, Log: log})
	if err != nil {
		return err
	}
	if app.JSON {
		return app.Print(result, nil)
	}
	return nil
}
