package cli

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/controller/networkapi"
)

func networkHistoryCommand(app *App) *cobra.Command {
	var since string
	var asCSV bool
	cmd := &cobra.Command{
		Use:   "history SWITCH/PORT",
		Short: "Show what was measured of a link within the last hour",
		Long: `Shows what was measured of one direction of a link: the one that leaves by the
port. "sluice network links" lists the links.`,
		Example: `  sluice network history 00000000000000a1/3 --since 10m
  sluice network history 00000000000000a1/3 --csv >link.csv`,
		Args: command.ExactArgs("SWITCH/PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asCSV && app.JSON {
				return &command.UsageError{Err: errors.New("--csv and --json exclude each other")}
			}
			var all []networkapi.LinkHistory
			var table func(io.Writer)
			if !asCSV {
				table = func(w io.Writer) {
					for _, h := range all {
						Fields(w, h)
					}
				}
			}
			path := networkPath + "links/history" + parameters("from", args[0], "since", since)
			if err := app.call(cmd, http.MethodGet, path, nil, &all, table); err != nil || !asCSV {
				return err
			}
			return writeLinkCSV(app.Out, all)
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "from when on: how long ago, like 10m, or a time like 2026-01-31T12:00:00Z")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "comma-separated values, with the API's names and units")
	return cmd
}

// writeLinkCSV writes one line for each point. What is not known is left empty.
func writeLinkCSV(w io.Writer, all []networkapi.LinkHistory) error {
	fields := fieldsOf(reflect.TypeFor[networkapi.LinkPoint]())
	rows := [][]string{append([]string{"from", "to"}, namesOf(reflect.TypeFor[networkapi.LinkPoint]())...)}
	for _, h := range all {
		for _, p := range h.Points {
			row := []string{portName(h.From), portName(h.To)}
			for _, f := range fields {
				row = append(row, f.plain(reflect.ValueOf(p)))
			}
			rows = append(rows, row)
		}
	}
	return csv.NewWriter(w).WriteAll(rows)
}

func portName(p networkapi.Place) string { return fmt.Sprintf("%s/%d", p.Switch, p.Port) }
