package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/handover/domain"
	"github.com/sluice-net/sluice/handover/plugin"
)

const handoverPath = api.Prefix + "/" + plugin.Name + "/"

func handoverCommand(app *App) *cobra.Command {
	return group("handover", "Let devices move and keep every connection", `  sluice handover pools set campus --prefix 10.8.0.0/24 --gateway 10.8.0.1
  sluice handover devices set car7 --mac 02:00:00:00:07:01 --mac 02:00:00:00:07:02
  sluice handover list --device car7
  sluice handover move car7 --port 00000000000000a1/3`,
		GetCommand(app, "status", "Show state and errors", handoverPath+"status", Fields[plugin.Status]),
		GetCommand(app, "stats", "Show times and rule changes of the handovers that are remembered", handoverPath+"stats", Fields[plugin.Stats]),
		GetCommand(app, "borders", "List the ports where the mobility network meets the rest", handoverPath+"borders", Table[plugin.BorderInfo]("")),
		GetCommand(app, "coverage", "List what the attachment points cover", handoverPath+"coverage", Table[plugin.CellInfo]("")),
		GetCommand(app, "neighbours", "List the neighbouring domains", handoverPath+"neighbours", Table[domain.NeighbourStatus]("")),
		GetCommand(app, "roaming", "List devices that are abroad, visiting, or on their way", handoverPath+"roaming", Table[domain.Roaming](
			"id home ip host=IN upstream=FROM downstream=TO peer=MOVES stage outbox")),
		handoverClassesCommand(app), handoverPoolsCommand(app), handoverDevicesCommand(app), handoverLeasesCommand(app), handoverPositionsCommand(app),
		handoverListCommand(app),
		GetCommand(app, "show ID", "Show one record: way, join, time by part", handoverPath+"handovers", Fields[plugin.Record]),
		handoverMoveCommand(app), handoverPrepareCommand(app), handoverAnnounceCommand(app))
}

func handoverListCommand(app *App) *cobra.Command {
	cmd := GetCommand(app, "list", "List what happened to devices, the latest first", handoverPath+"handovers", Table[plugin.Record](
		"id device kind policy prepared from to parts.t_f=RULES parts.t_d=DHCP parts.trigger_to_rules=TRIGGER changes result how started"))
	var kind, result string
	cmd.Flags().String("device", "", "only records of this device")
	cmd.Flags().Var(command.Word(&kind, "", "attach", "move", "prepare", "detach", "reroute"), "kind", "only records of this kind")
	cmd.Flags().Var(command.Word(&result, "", "done", "failed"), "result", "only records that ended so")
	cmd.Flags().Int("limit", 50, "at most so many")
	return cmd
}

func handoverClassesCommand(app *App) *cobra.Command {
	d := Declared[plugin.ClassSpec, plugin.ClassInfo]{
		App: app, Noun: "a class", Path: handoverPath + "classes",
		Columns: "name policy trigger overlap ports origin", Flags: map[string]string{"ports": "port"},
	}
	return group("classes", "Say how devices are moved, and what may move them", `  sluice handover classes set vehicles --policy seamless --trigger signed --overlap 300ms
  sluice handover classes list`,
		d.List(), written(d.Set()), d.Remove())
}

func handoverPoolsCommand(app *App) *cobra.Command {
	d := Declared[plugin.PoolSpec, plugin.PoolInfo]{
		App: app, Noun: "a pool", Path: handoverPath + "pools",
		Columns: "name prefix first last held/size=USED gateway router lease_time learn home origin",
		Flags:   map[string]string{"server": "dhcp-server"},
	}
	return group("pools", "Say which addresses devices get", `  sluice handover pools set campus --prefix 10.8.0.0/24 --gateway 10.8.0.1 --lease-time 2h
  sluice handover pools list`,
		d.List(), written(d.Set()), d.Remove())
}

func handoverDevicesCommand(app *App) *cobra.Command {
	d := Declared[plugin.DeviceSpec, plugin.DeviceInfo]{
		App: app, Noun: "a device", Path: handoverPath + "devices",
		Columns: "id ip=ADDRESS at since policy trigger class macs rules origin error",
		Flags:   map[string]string{"macs": "mac", "ports": "port", "key": "key-file"},
	}
	list, remove := d.List(), d.Remove()
	list.Flags().String("port", "", "only devices at this port, or at this switch")
	list.Flags().String("class", "", "only devices of this class")
	remove.Short += " with its lease and its rules"
	return group("devices", "Register, list and remove devices", `  sluice handover devices set car7 --mac 02:00:00:00:07:01 --mac 02:00:00:00:07:02 --class vehicles
  sluice handover devices list --port 00000000000000a1
  sluice handover devices show car7`,
		list, d.Show(), written(d.Set()), remove)
}

// written is a command that replaces what there may not be yet.
func written(set *cobra.Command) *cobra.Command {
	set.Short += ", or add one"
	return set
}

func handoverLeasesCommand(app *App) *cobra.Command {
	return group("leases", "List and end leases", `  sluice handover leases list
  sluice handover leases end car7`,
		GetCommand(app, "list", "List the leases", handoverPath+"leases", Table[plugin.LeaseInfo]("device ip=ADDRESS state expires=UNTIL at pool mac=ASKED_BY")),
		RemoveCommand(app, "end DEVICE", "End a device's lease and remove its rules", handoverPath+"leases"))
}

// taken has the flag --cancel take back what a command does, by a DELETE of the same path.
func taken(app *App, cmd *cobra.Command, path string) *cobra.Command {
	do, cancel := cmd.RunE, false
	cmd.Flags().BoolVar(&cancel, "cancel", false, "take it back")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cancel {
			return app.call(cmd, http.MethodDelete, filled(path, args), nil, nil, nil)
		}
		return do(cmd, args)
	}
	return cmd
}
