package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/qos"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/services/qos/subflows"
)

const qosPath = api.Prefix + "/" + qos.Name + "/"

func qosCommand(app *commands.App) *cobra.Command {
	return commands.Group("qos", "Give traffic the bandwidth and the latency that it requires", `  sluice qos critical add backup --rate 10Mbit --match ipv4_dst=10.0.0.4,tcp_dst=5001
  sluice qos flows
  sluice qos reservations`,
		qosCriticalCommand(app), qosClassesCommand(app),
		qosFlowsCommand(app),
		commands.Get(app, "refusals", "List the switches where critical flows are not recognised, and why", qosPath+"refusals", commands.Table[critical.Refusal]("")),
		commands.Get(app, "reservations", "List what is promised on links", qosPath+"reservations", commands.Table[reserve.Reservation]("")))
}

func qosFlowsCommand(app *commands.App) *cobra.Command {
	flows := commands.Get(app, "flows", "List the critical flows, where they go, and what they are promised", qosPath+"flows", commands.Table[critical.Record](
		"flow definition state rate_bits_per_second sent_bits_per_second=SENDS moves path reason"))
	flows.AddCommand(commands.Get(app, "large", "List the further subflows of large MPTCP connections, and where they go", qosPath+"subflows", commands.Table[subflows.Subflow](
		"connection flow bits_per_second=CARRIES bytes reverse moves path")))
	return flows
}

func qosCriticalCommand(app *commands.App) *cobra.Command {
	d := commands.Declared[critical.Spec, critical.DefinitionInfo]{
		App: app, Singular: "a definition", Path: qosPath + "critical",
		Columns: "name rate match idle_timeout origin notes",
	}
	set, remove := d.Set(), d.Remove()
	set.Short += "; its flows are placed anew by their next packets"
	remove.Short += "; its flows give up what they were promised"
	return commands.Group("critical", "Say which traffic is critical, and what it requires", `  sluice qos critical add backup --rate 10Mbit --match ipv4_dst=10.0.0.4,tcp_dst=5000-5100
  sluice qos critical list
  sluice qos critical remove backup`,
		d.List(), d.Show(), d.Add(), set, remove)
}

func qosClassesCommand(app *commands.App) *cobra.Command {
	d := commands.Declared[classes.ClassSpec, classes.Info]{
		App: app, Singular: "a class", Path: qosPath + "classes",
		Columns: "name priority min_rate max_rate latency_milliseconds state reason notes",
		Flags:   map[string]string{"flows": "flow"},
	}
	add, set, remove := d.Add(), d.Set(), d.Remove()
	set.Short += "; its packets go without the queue until it is placed anew"
	add.Long = `Requests a class: by flags, or with --file as JSON with the names of the API. It is
accepted with queues and rules on every hop, or refused with the hop and the number.`
	remove.Short += ", also while it is being provisioned"
	return commands.Group("classes", "Give classes of traffic queues of their own on every hop", `  sluice qos classes add VoIP --priority 2 --min-rate 2Mbit --latency 150ms \
    --flow ipv4_src=10.0.0.2,ipv4_dst=10.0.0.4,udp_dst=5001 \
    --flow ipv4_src=10.0.0.4,ipv4_dst=10.0.0.2,udp_src=5001
  sluice qos classes add VoIP --file voip.json
  sluice qos classes set VoIP --priority 2 --min-rate 4Mbit --flow ipv4_dst=10.0.0.4,udp_dst=5001
  sluice qos classes stats VoIP
  sluice qos classes remove VoIP`,
		d.List(), d.Show(), add, set, remove,
		commands.Get(app, "stats NAME", "Show what a class's queues have counted", d.Path+"/%s/stats", commands.Fields[classes.Stats]))
}
