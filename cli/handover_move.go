package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/handover/plugin"
)

const onDevice = handoverPath + "devices/%s/"

func handoverMoveCommand(app *App) *cobra.Command {
	cmd := send(app, "move DEVICE", "Order a device's daemon to move", http.MethodPost, onDevice+"move", request[plugin.MoveSpec]{}, Fields[plugin.Order])
	cmd.Long = `Prepares the place, if one is named, and orders the daemon "sluice mobile" on the
device to go on by that interface.`
	cmd.Example = `  sluice handover move car7 --port 00000000000000a1/3
  sluice handover move car7 --mac 02:00:00:00:07:02 --hold 1m`
	return cmd
}

func handoverPrepareCommand(app *App) *cobra.Command {
	cmd := send(app, "prepare DEVICE", "Prepare a place for a device, or take that back", http.MethodPost, onDevice+"prepare",
		request[plugin.PlaceSpec]{"timeout": "for"}, Fields[plugin.DeviceInfo])
	cmd.Example = `  sluice handover prepare car7 --port 00000000000000a1/3 --for 20s
  sluice handover prepare car7 --cancel`
	return taken(app, cmd, onDevice+"prepare")
}

func handoverAnnounceCommand(app *App) *cobra.Command {
	var nothing func(io.Writer, struct{})
	cmd := send(app, "announce DEVICE", "Announce a device to a neighbouring domain, or take that back", http.MethodPost, onDevice+"announce",
		request[plugin.AnnounceSpec]{}, nothing)
	cmd.Example = `  sluice handover announce car7 --domain north --port 00000000000000b1/2
  sluice handover announce car7 --cancel`
	return taken(app, cmd, onDevice+"announce")
}

func handoverPositionsCommand(app *App) *cobra.Command {
	table := Table[plugin.PositionInfo]("device x y speed heading time next enter=ENTERS prepared error")
	return group("positions", "Report and list positions of devices", `  sluice handover positions report car7 --x 120 --y 40 --speed 14 --heading 90
  sluice handover positions report --file reports.json
  sluice handover positions list`,
		GetCommand(app, "list", "List the latest reports, and where the devices go", handoverPath+"positions", table),
		handoverReportCommand(app, table))
}

func handoverReportCommand(app *App, table func(io.Writer, []plugin.PositionInfo)) *cobra.Command {
	var file string
	var fields []*flagged
	cmd := &cobra.Command{
		Use: "report [DEVICE]", Short: "Report where a device is and how it moves", Args: command.UpTo("DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (file == "") == (len(args) == 0) {
				return &command.UsageError{Err: errors.New("sluice handover positions report: name a device, or a file with --file")}
			}
			var reports []map[string]any
			if file != "" {
				b, err := readInput(file)
				if err == nil {
					err = json.Unmarshal(b, &reports)
				}
				if err != nil {
					return fmt.Errorf("--file %s: want a list of reports as the API takes them: %w", file, err)
				}
			} else {
				one, err := bodyOf(fields, "")
				if err != nil {
					return &command.UsageError{Err: err}
				}
				one["device"] = args[0]
				reports = append(reports, one)
			}
			var all []plugin.PositionInfo
			return app.call(cmd, http.MethodPost, handoverPath+"positions", reports, &all, func(w io.Writer) { table(w, all) })
		},
	}
	fields = request[plugin.PositionSpec]{}.define(cmd)
	cmd.Flags().StringVar(&file, "file", "", "file with reports of many devices, JSON, - for the input")
	return cmd
}
