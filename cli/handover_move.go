package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/handover/plugin"
)

// devicePath is the path of an operation on a device.
func devicePath(id, operation string) string {
	return handoverPath + "devices/" + url.PathEscape(id) + "/" + operation
}

func handoverMoveCommand(app *App) *cobra.Command {
	var s plugin.MoveSpec
	cmd := &cobra.Command{
		Use: "move DEVICE", Short: "Order a device's daemon to move",
		Long: `Prepares the place, if one is named, and orders the daemon "sluice mobile" on the
device to go on by that interface.`,
		Example: `  sluice handover move car7 --port 00000000000000a1/3
  sluice handover move car7 --mac 02:00:00:00:07:02 --hold 1m`,
		Args: command.ExactArgs("DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var o plugin.Order
			if err := app.Send(cmd, http.MethodPost, devicePath(args[0], "move"), s, &o); err != nil {
				return err
			}
			return app.Print(o, func(w io.Writer) {
				to := "anywhere"
				if o.To != nil {
					to = o.To.String()
				}
				fmt.Fprintf(w, "order %d: %s to go on with %v at %s\n", o.ID, o.Device, o.MAC, to)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Port, "port", "", "port where it is expected; it is prepared first")
	f.StringVar(&s.MAC, "mac", "", "interface to go on with; left out: with a port the one it uses, else its next one")
	f.StringVar(&s.Hold, "hold", "", "how long it is to stay there whatever its own policy says")
	f.StringVar(&s.Why, "why", "", "reason that it is told")
	f.BoolVar(&s.Force, "force", false, "give the order even if no daemon listens now; it is kept for 30s")
	return cmd
}

func handoverPrepareCommand(app *App) *cobra.Command {
	var s plugin.PlaceSpec
	var cancel bool
	cmd := &cobra.Command{
		Use: "prepare DEVICE", Short: "Prepare a place for a device, or take that back",
		Example: `  sluice handover prepare car7 --port 00000000000000a1/3 --for 20s
  sluice handover prepare car7 --cancel`,
		Args: command.ExactArgs("DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cancel {
				return app.Send(cmd, http.MethodDelete, devicePath(args[0], "prepare"), nil, nil)
			}
			var d plugin.DeviceInfo
			if err := app.Send(cmd, http.MethodPost, devicePath(args[0], "prepare"), s, &d); err != nil {
				return err
			}
			return app.Print(d, func(w io.Writer) { printDevice(w, d) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Port, "port", "", "edge port")
	f.StringVar(&s.MAC, "mac", "", "MAC address that it will use there; left out: the one it uses now")
	f.StringVar(&s.Timeout, "for", "", "how long it stays prepared if the device does not come")
	f.BoolVar(&cancel, "cancel", false, "take back what is prepared")
	return cmd
}

func handoverAnnounceCommand(app *App) *cobra.Command {
	var s plugin.AnnounceSpec
	var cancel bool
	cmd := &cobra.Command{
		Use: "announce DEVICE", Short: "Announce a device to a neighbouring domain, or take that back",
		Example: `  sluice handover announce car7 --domain north --port 00000000000000b1/2
  sluice handover announce car7 --cancel`,
		Args: command.ExactArgs("DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cancel {
				return app.Send(cmd, http.MethodDelete, devicePath(args[0], "announce"), nil, nil)
			}
			return app.Send(cmd, http.MethodPost, devicePath(args[0], "announce"), s, nil)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Domain, "domain", "", "neighbouring domain")
	f.StringVar(&s.Port, "port", "", "port of that domain where it will attach, if it is known")
	f.StringVar(&s.MAC, "mac", "", "MAC address that it will use there")
	f.BoolVar(&cancel, "cancel", false, "take the announcement back")
	return cmd
}

func handoverCoverageCommand(app *App) *cobra.Command {
	return GetCommand(app, "coverage", "List what the attachment points cover", handoverPath+"coverage", func(w io.Writer, all []plugin.CellInfo) {
		fmt.Fprintln(w, "NAME\tPORT\tDOMAIN\tINTERFACE\tAREA")
		for _, c := range all {
			area := fmt.Sprintf("polygon of %d corners", len(c.Polygon))
			if c.Centre != nil {
				area = fmt.Sprintf("%g m around %g, %g", c.Radius, c.Centre[0], c.Centre[1])
			}
			fmt.Fprintf(w, "%s\t%v\t%s\t%d\t%s\n", c.Name, c.Port, c.Peer, c.Interface, area)
		}
	})
}

func handoverPositionsCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "positions", Short: "Report and list positions of devices",
		Example: `  sluice handover positions report car7 --x 120 --y 40 --speed 14 --heading 90
  sluice handover positions report --file reports.json
  sluice handover positions list`,
	}
	list := GetCommand(app, "list", "List the latest reports, and where the devices go", handoverPath+"positions", printPositions)
	cmd.AddCommand(list, handoverReportCommand(app))
	return cmd
}

func handoverReportCommand(app *App) *cobra.Command {
	var s plugin.PositionSpec
	var lat, lon float64
	var file string
	cmd := &cobra.Command{
		Use: "report [DEVICE]", Short: "Report where a device is and how it moves", Args: command.UpTo("DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (file == "") == (len(args) == 0) {
				return &command.UsageError{Err: errors.New("sluice handover positions report: name a device, or a file with --file")}
			}
			reports := []plugin.PositionSpec{s}
			switch {
			case file != "":
				b, err := os.ReadFile(file)
				if err != nil {
					return fmt.Errorf("--file: %w", err)
				}
				if err := json.Unmarshal(b, &reports); err != nil {
					return fmt.Errorf("--file %s: want a list of reports as the API takes them: %w", file, err)
				}
			default:
				reports[0].Device = args[0]
				if cmd.Flags().Changed("lat") || cmd.Flags().Changed("lon") {
					reports[0].Lat, reports[0].Lon = &lat, &lon
				}
			}
			var all []plugin.PositionInfo
			if err := app.Send(cmd, http.MethodPost, handoverPath+"positions", reports, &all); err != nil {
				return err
			}
			return app.Print(all, func(w io.Writer) { printPositions(w, all) })
		},
	}
	f := cmd.Flags()
	f.Float64Var(&s.X, "x", 0, "metres east")
	f.Float64Var(&s.Y, "y", 0, "metres north")
	f.Float64Var(&lat, "lat", 0, "degrees north, with --lon instead of --x and --y")
	f.Float64Var(&lon, "lon", 0, "degrees east")
	f.Float64Var(&s.Speed, "speed", 0, "metres per second")
	f.Float64Var(&s.Heading, "heading", 0, "degrees clockwise from north")
	f.Float64Var(&s.Accuracy, "accuracy", 0, "metres by which the position may be off")
	f.StringVar(&file, "file", "", "file with reports of many devices, JSON")
	return cmd
}

func printPositions(w io.Writer, all []plugin.PositionInfo) {
	fmt.Fprintln(w, "DEVICE\tEAST\tNORTH\tSPEED\tHEADING\tAT\tNEXT\tENTERS\tPREPARED\tERROR")
	for _, p := range all {
		enters := ""
		if p.Enter != nil {
			enters = p.Enter.Local().Format(time.TimeOnly)
		}
		fmt.Fprintf(w, "%s\t%g\t%g\t%g\t%g\t%s\t%s\t%s\t%v\t%s\n", p.Device, p.X, p.Y, p.Speed, p.Heading, p.Time.Local().Format(time.TimeOnly), p.Next, enters, p.Prepared, p.Error)
	}
}
