package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/qos/latency"
	"github.com/sluice-net/sluice/qos/match"
)

func qosClassCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "class", Short: "Give classes of traffic queues of their own on every hop",
		Example: `  sluice qos class add VoIP --priority 2 --min-rate 2Mbit --latency 150ms \
    --flow ipv4_src=10.0.0.2,ipv4_dst=10.0.0.4,udp_dst=5001 \
    --flow ipv4_src=10.0.0.4,ipv4_dst=10.0.0.2,udp_src=5001
  sluice qos class add --file voip.json
  sluice qos class stats VoIP
  sluice qos class remove VoIP`,
	}
	list := GetCommand(app, "list", "List the classes", qosPath+"classes", printQoSClasses)
	show := &cobra.Command{
		Use: "show NAME", Short: "Show a class with its paths", Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var c latency.Info
			return app.get(cmd, classPath(args[0]), &c, func(w io.Writer) { printQoSClass(w, c) })
		},
	}
	stats := &cobra.Command{
		Use: "stats NAME", Short: "Show what a class's queues have counted", Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var s latency.Stats
			return app.get(cmd, classPath(args[0])+"/stats", &s, func(w io.Writer) { printClassStats(w, s) })
		},
	}
	remove := RemoveCommand(app, "remove NAME", "Release a class, or withdraw it while it is being provisioned", qosPath+"classes")
	cmd.AddCommand(qosClassAddCommand(app), list, show, stats, remove)
	return cmd
}

func classPath(name string) string { return qosPath + "classes/" + url.PathEscape(name) }

// classFlags are the flags of a request.
type classFlags struct {
	file, minRate, maxRate string
	priority               int
	latency                time.Duration
	flows                  []string
}

func qosClassAddCommand(app *App) *cobra.Command {
	var flags classFlags
	cmd := &cobra.Command{
		Use: "add [NAME]", Short: "Request a class", Args: command.UpTo("NAME"),
		Long: `Requests a class: by flags, or with --file as JSON with the names of the API. It is
accepted with queues and rules on every hop, or refused with the hop and the number.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := flags.spec(args)
			if err != nil {
				return err
			}
			var made latency.Info
			return app.sendAndPrint(cmd, http.MethodPost, qosPath+"classes", spec, &made, func(w io.Writer) { printQoSClass(w, made) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.file, "file", "", "file with the request in JSON, - for the input")
	f.IntVar(&flags.priority, "priority", 0, "priority from 0, the first, to 7, like traffic without a class")
	f.StringVar(&flags.minRate, "min-rate", "", "rate guaranteed on every hop, like 2Mbit; left out: the configured share of each link")
	f.StringVar(&flags.maxRate, "max-rate", "", "rate that is never exceeded; left out: each link's own")
	f.DurationVar(&flags.latency, "latency", 0, "latency that the path may have; left out: any")
	f.StringArrayVar(&flags.flows, "flow", nil, "description of a flow, FIELD=VALUE,...; may be repeated")
	return cmd
}

// spec makes the request of the flags.
func (f *classFlags) spec(args []string) (latency.ClassSpec, error) {
	var spec latency.ClassSpec
	if f.file != "" {
		if len(args) > 0 || len(f.flows) > 0 || f.minRate != "" || f.maxRate != "" || f.priority != 0 || f.latency != 0 {
			return spec, &command.UsageError{Err: errors.New("--file has the whole request: want it alone")}
		}
		return readClass(f.file)
	}
	if len(args) != 1 || len(f.flows) == 0 {
		return spec, &command.UsageError{Err: errors.New("want NAME and --flow, or --file")}
	}
	spec.Name, spec.Priority = args[0], match.Text(fmt.Sprint(f.priority))
	for _, r := range []struct {
		flag, text string
		to         *match.Text
	}{{"--min-rate", f.minRate, &spec.MinRate}, {"--max-rate", f.maxRate, &spec.MaxRate}} {
		if _, err := units.ParseRate(r.text); r.text != "" && err != nil {
			return spec, &command.UsageError{Err: fmt.Errorf("%s: %w", r.flag, err)}
		}
		*r.to = match.Text(r.text)
	}
	if f.latency != 0 {
		spec.Latency = match.Text(f.latency.String())
	}
	for _, text := range f.flows {
		flow, err := describedFlow("--flow", strings.Split(text, ","))
		if err != nil {
			return spec, err
		}
		spec.Flows = append(spec.Flows, flow)
	}
	return spec, nil
}

func readClass(file string) (spec latency.ClassSpec, err error) {
	in := os.Stdin
	if file != "-" {
		if in, err = os.Open(file); err != nil {
			return spec, &command.UsageError{Err: err}
		}
		defer in.Close()
	}
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&spec); err != nil {
		return spec, &command.UsageError{Err: fmt.Errorf("%s: %w", file, err)}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return spec, &command.UsageError{Err: fmt.Errorf("%s: want one request, there is more after it", file)}
	}
	return spec, nil
}

func printQoSClasses(w io.Writer, all []latency.Info) {
	fmt.Fprintln(w, "NAME\tPRIORITY\tMIN RATE\tMAX RATE\tLATENCY\tSTATE\tREASON")
	for _, c := range all {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", c.Name, c.Priority, rateOrDefault(c.MinRate, "quota"), rateOrDefault(c.MaxRate, "link"), latencyOrAny(c.Latency), c.State, c.Reason)
	}
}

func rateOrDefault(rate units.Rate, otherwise string) string {
	if rate == 0 {
		return otherwise
	}
	return bitRate(float64(rate))
}

func latencyOrAny(ms float64) string {
	if ms == 0 {
		return "any"
	}
	return fmt.Sprintf("%g ms", ms)
}

func printQoSClass(w io.Writer, c latency.Info) {
	printQoSClasses(w, []latency.Info{c})
	fmt.Fprintf(w, "\nqueue\t%d\n", c.Queue)
	if c.Mark != nil {
		fmt.Fprintf(w, "mark\tDSCP %d within userspace datapaths\n", *c.Mark)
	}
	for i, f := range c.Flows {
		fmt.Fprintf(w, "flow %d\t%s\n", i, flowText(f))
	}
	for _, n := range c.Notes {
		fmt.Fprintf(w, "note\t%s\n", n)
	}
	for _, p := range c.Paths {
		hops := make([]string, len(p.Hops))
		for i, h := range p.Hops {
			hops[i] = fmt.Sprintf("%s/%d", h.Switch, h.Out)
		}
		fmt.Fprintf(w, "way of flow %d\t%s (%.2f ms)\n", p.Flow, strings.Join(hops, " "), p.Latency)
	}
	for _, p := range c.Ports {
		fmt.Fprintf(w, "%s/%d\t%s to %s\n", p.Switch, p.Port, bitRate(float64(p.MinRate)), bitRate(float64(p.MaxRate)))
	}
}

func printClassStats(w io.Writer, s latency.Stats) {
	if s.Reason != "" {
		fmt.Fprintf(w, "%s: %s\n\n", s.State, s.Reason)
	}
	fmt.Fprintln(w, "PORT\tQUEUE\tBYTES\tPACKETS\tDROPS\tRATE\tMATCHED\tWITHOUT EFFECT")
	for _, q := range s.Queues {
		fmt.Fprintf(w, "%s/%d\t%d\t%d\t%d\t%d\t%s\t%d\t%d\n", q.Switch, q.Port, q.Queue, q.Bytes, q.Packets, q.Drops, bitRate(q.BitRate), q.Matched, q.WithoutEffect)
	}
}
