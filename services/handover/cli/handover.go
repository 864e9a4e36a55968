package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/domain"
)

const handoverPath = api.Prefix + "/" + handover.Name + "/"

func handoverCommand(app *commands.App) *cobra.Command {
	return commands.Group("handover", "Let devices move and keep every connection", `  sluice handover pools set campus --prefix 10.8.0.0/24 --gateway 10.8.0.1
  sluice handover devices set car7 --mac 02:00:00:00:07:01 --mac 02:00:00:00:07:02
  sluice handover list --device car7
  sluice handover move car7 --port 00000000000000a1/3`,
		commands.Get(app, "status", "Show state and errors", handoverPath+"status", commands.Fields[handover.Status]),
		commands.Get(app, "stats", "Show times and rule changes of the recorded handovers", handoverPath+"stats", commands.Fields[handover.Stats]),
		commands.Get(app, "borders", "List the ports where the mobility network meets the rest", handoverPath+"borders", commands.Table[handover.BorderInfo]("")),
		commands.Get(app, "coverage", "List what the attachment points cover", handoverPath+"coverage", commands.Table[handover.CellInfo]("")),
		commands.Get(app, "neighbours", "List the neighbouring domains", handoverPath+"neighbours", commands.Table[domain.NeighbourStatus]("")),
		commands.Get(app, "roaming", "List devices that are abroad, visiting, or moving between domains", handoverPath+"roaming", commands.Table[domain.Roaming](
			"id home ip host=IN upstream=FROM downstream=TO peer=MOVES stage outbox")),
		handoverClassesCommand(app), handoverPoolsCommand(app), handoverDevicesCommand(app), handoverLeasesCommand(app), handoverPositionsCommand(app),
		handoverListCommand(app),
		commands.Get(app, "show ID", "Show one record: path, join, time by part", handoverPath+"handovers", commands.Fields[handover.Record]),
		handoverMoveCommand(app), handoverPrepareCommand(app), handoverAnnounceCommand(app))
}

func handoverListCommand(app *commands.App) *cobra.Command {
	cmd := commands.Get(app, "list", "List the records of handovers, the latest first", handoverPath+"handovers", commands.Table[handover.Record](
		"id device kind policy prepared from to parts.t_f=RULES parts.t_d=DHCP parts.trigger_to_rules=TRIGGER changes result how started"))
	var kind, result string
	cmd.Flags().String("device", "", "only records of this device")
	cmd.Flags().Var(command.Word(&kind, "", "attach", "move", "prepare", "detach", "reroute"), "kind", "only records of this kind")
	cmd.Flags().Var(command.Word(&result, "", "done", "failed"), "result", "only records that ended so")
	cmd.Flags().Int("limit", 50, "at most so many")
	return cmd
}

func handoverClassesCommand(app *commands.App) *cobra.Command {
	d := commands.Declared[handover.ClassSpec, handover.ClassInfo]{
		App: app, Singular: "a class", Path: handoverPath + "classes",
		Columns: "name policy trigger overlap ports origin", Flags: map[string]string{"ports": "port"},
	}
	return commands.Group("classes", "Say how devices are moved, and what may move them", `  sluice handover classes set vehicles --policy seamless --trigger signed --overlap 300ms
  sluice handover classes list`,
		d.List(), written(d.Set()), d.Remove())
}

func handoverPoolsCommand(app *commands.App) *cobra.Command {
	d := commands.Declared[handover.PoolSpec, handover.PoolInfo]{
		App: app, Singular: "a pool", Path: handoverPath + "pools",
		Columns: "name prefix first last held/size=USED gateway router lease_time learn home origin",
		Flags:   map[string]string{"server": "dhcp-server"},
	}
	return commands.Group("pools", "Say which addresses devices get", `  sluice handover pools set campus --prefix 10.8.0.0/24 --gateway 10.8.0.1 --lease-time 2h
  sluice handover pools list`,
		d.List(), written(d.Set()), d.Remove())
}

func handoverDevicesCommand(app *commands.App) *cobra.Command {
	d := commands.Declared[handover.DeviceSpec, handover.DeviceInfo]{
		App: app, Singular: "a device", Path: handoverPath + "devices",
		Columns: "id ip=ADDRESS at since policy trigger class macs rules origin error",
		Flags:   map[string]string{"macs": "mac", "ports": "port", "key": "key-file"},
	}
	list, remove := d.List(), d.Remove()
	list.Flags().String("port", "", "only devices at this port, or at this switch")
	list.Flags().String("class", "", "only devices of this class")
	remove.Short += " with its lease and its rules"
	return commands.Group("devices", "Register, list and remove devices", `  sluice handover devices set car7 --mac 02:00:00:00:07:01 --mac 02:00:00:00:07:02 --class vehicles
  sluice handover devices list --port 00000000000000a1
  sluice handover devices show car7`,
		list, d.Show(), written(d.Set()), remove)
}

// written adds to the description of a set command that the command also adds an item that does not
// exist yet.
func written(set *cobra.Command) *cobra.Command {
	set.Short += ", or add one"
	return set
}

func handoverLeasesCommand(app *commands.App) *cobra.Command {
	return commands.Group("leases", "List and end leases", `  sluice handover leases list
  sluice handover leases end car7`,
		commands.Get(app, "list", "List the leases", handoverPath+"leases", commands.Table[handover.LeaseInfo]("device ip=ADDRESS state expires=UNTIL at pool mac=ASKED_BY")),
		commands.Remove(app, "end DEVICE", "End a device's lease and remove its rules", handoverPath+"leases"))
}

// cancellable adds the flag --cancel. With it, the command sends a DELETE request to path, which undoes
// its earlier run.
func cancellable(app *commands.App, cmd *cobra.Command, path string) *cobra.Command {
	do, cancel := cmd.RunE, false
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cancel {
			return app.Call(cmd, http.MethodDelete, commands.FillPath(path, args), nil, nil, nil)
		}
		return do(cmd, args)
	}
	return cmd
}

const onDevice = handoverPath + "devices/%s/"

func handoverMoveCommand(app *commands.App) *cobra.Command {
	cmd := commands.Send(app, "move DEVICE", "Order a device's daemon to move", http.MethodPost, onDevice+"move", commands.Request[handover.MoveSpec]{}, commands.Fields[handover.Order])
	cmd.Long = `Prepares the place, if one is named, and orders the daemon "sluice mobile" on the
device to continue by that interface.`
	cmd.Example = `  sluice handover move car7 --port 00000000000000a1/3
  sluice handover move car7 --mac 02:00:00:00:07:02 --hold 1m`
	return cmd
}

func handoverPrepareCommand(app *commands.App) *cobra.Command {
	cmd := commands.Send(app, "prepare DEVICE", "Prepare a place for a device, or cancel that", http.MethodPost, onDevice+"prepare",
		commands.Request[handover.PlaceSpec]{"timeout": "for"}, commands.Fields[handover.DeviceInfo])
	cmd.Example = `  sluice handover prepare car7 --port 00000000000000a1/3 --for 20s
  sluice handover prepare car7 --cancel`
	return cancellable(app, cmd, onDevice+"prepare")
}

func handoverAnnounceCommand(app *commands.App) *cobra.Command {
	var nothing func(io.Writer, struct{})
	cmd := commands.Send(app, "announce DEVICE", "Announce a device to a neighbouring domain, or withdraw that", http.MethodPost, onDevice+"announce",
		commands.Request[handover.AnnounceSpec]{}, nothing)
	cmd.Example = `  sluice handover announce car7 --domain north --port 00000000000000b1/2
  sluice handover announce car7 --cancel`
	return cancellable(app, cmd, onDevice+"announce")
}

func handoverPositionsCommand(app *commands.App) *cobra.Command {
	table := commands.Table[handover.PositionInfo]("device x y speed heading time next enter=ENTERS prepared error")
	return commands.Group("positions", "Report and list positions of devices", `  sluice handover positions report car7 --x 120 --y 40 --speed 14 --heading 90
  sluice handover positions report --file reports.json
  sluice handover positions list`,
		commands.Get(app, "list", "List the latest reports, and where the devices go", handoverPath+"positions", table),
		handoverReportCommand(app, table))
}

func handoverReportCommand(app *commands.App, table func(io.Writer, []handover.PositionInfo)) *cobra.Command {
	var file string
	var fields commands.RequestFlags
	cmd := &cobra.Command{
		Use: "report [DEVICE]", Short: "Report where a device is and how it moves", Args: command.UpTo("DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (file == "") == (len(args) == 0) {
				return &command.UsageError{Err: errors.New("sluice handover positions report: name a device, or a file with --file")}
			}
			var reports []map[string]any
			if file != "" {
				b, err := commands.ReadInput(file)
				if err == nil {
					err = json.Unmarshal(b, &reports)
				}
				if err != nil {
					return fmt.Errorf("--file %s: want a list of reports as the API takes them: %w", file, err)
				}
			} else {
				one, err := fields.Body("")
				if err != nil {
					return &command.UsageError{Err: err}
				}
				one["device"] = args[0]
				reports = append(reports, one)
			}
			return commands.Ask(app, cmd, http.MethodPost, handoverPath+"positions", reports, table)
		},
	}
	fields = commands.Request[handover.PositionSpec]{}.Define(cmd)
	cmd.Flags().StringVar(&file, "file", "", "file with reports of many devices, JSON, - for the input")
	return cmd
}
