package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/qos/bandwidth"
	"github.com/sluice-net/sluice/qos/match"
	"github.com/sluice-net/sluice/qos/plugin"
)

const qosPath = api.Prefix + "/" + plugin.Name + "/"

func qosCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "qos",
		Short: "Give traffic the bandwidth and the latency that it requires",
		Example: `  sluice qos critical add backup --rate 10Mbit --match ipv4_dst=10.0.0.4 --match tcp_dst=5001
  sluice qos flows
  sluice qos reservations`,
	}
	cmd.AddCommand(qosCriticalCommand(app), qosClassCommand(app), qosFlowsCommand(app), qosRefusalsCommand(app), qosReservationsCommand(app))
	return cmd
}

func qosCriticalCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "critical", Short: "Say which traffic is critical, and what it requires",
		Example: `  sluice qos critical add backup --rate 10Mbit --match ipv4_dst=10.0.0.4 --match tcp_dst=5000-5100
  sluice qos critical list
  sluice qos critical remove backup`,
	}
	list := GetCommand(app, "list", "List the definitions", qosPath+"critical", printDefinitions)
	remove := RemoveCommand(app, "remove NAME", "Withdraw a definition; its flows give up what they were promised", qosPath+"critical")
	add := qosCriticalWriteCommand(app, "add NAME", "Define critical traffic", func(string) (method, path string) {
		return http.MethodPost, qosPath + "critical"
	})
	set := qosCriticalWriteCommand(app, "set NAME", "Define critical traffic anew; its flows are placed anew by their next packets", func(name string) (method, path string) {
		return http.MethodPut, qosPath + "critical/" + url.PathEscape(name)
	})
	cmd.AddCommand(list, add, set, remove)
	return cmd
}

// qosCriticalWriteCommand is a command that sends a definition by what request says.
func qosCriticalWriteCommand(app *App, use, short string, request func(name string) (method, path string)) *cobra.Command {
	var rate, reverse string
	var fields []string
	var idle time.Duration
	var once bool
	cmd := &cobra.Command{
		Use: use, Short: short, Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := bandwidth.Spec{Name: args[0], Once: once}
			var err error
			if err = spec.Rate.UnmarshalText([]byte(rate)); err != nil {
				return &command.UsageError{Err: fmt.Errorf("--rate: %w", err)}
			}
			if reverse != "" {
				spec.ReverseRate = new(units.Rate)
				if err = spec.ReverseRate.UnmarshalText([]byte(reverse)); err != nil {
					return &command.UsageError{Err: fmt.Errorf("--reverse-rate: %w", err)}
				}
			}
			if idle != 0 {
				spec.IdleTimeout = idle.String()
			}
			if spec.Match, err = describedFlow("--match", fields); err != nil {
				return err
			}
			var made bandwidth.DefinitionInfo
			method, path := request(spec.Name)
			if err := app.Send(cmd, method, path, spec, &made); err != nil {
				return err
			}
			return app.Print(made, func(w io.Writer) { printDefinitions(w, []bandwidth.DefinitionInfo{made}) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&rate, "rate", "", "bandwidth that each flow requires, like 10Mbit")
	f.StringVar(&reverse, "reverse-rate", "", "bandwidth required in the reverse direction; left out: a 32nd, for acknowledgements")
	f.StringArrayVar(&fields, "match", nil, "FIELD=VALUE that its packets have, as in the API, like tcp_dst=5001; may be repeated")
	f.DurationVar(&idle, "idle-timeout", 0, "how long a flow is silent before it is over; left out: 30s")
	f.BoolVar(&once, "once", false, "decide when a flow begins, and only then; otherwise one for which there was no room is accepted when there is")
	return cmd
}

// describedFlow makes a description of a flag's FIELD=VALUE parts.
func describedFlow(flag string, fields []string) (match.Flow, error) {
	known := jsonNames(match.Flow{})
	values := map[string]string{}
	for _, text := range fields {
		name, value, ok := strings.Cut(text, "=")
		_, twice := values[name]
		var wrong string
		switch {
		case !ok || value == "" || name == "":
			wrong = "write FIELD=VALUE, like tcp_dst=5001"
		case !slices.Contains(known, name):
			wrong = fmt.Sprintf("there is no field %q: write one of %s", name, strings.Join(known, ", "))
		case twice:
			wrong = name + " is given twice"
		}
		if wrong != "" {
			return match.Flow{}, &command.UsageError{Err: fmt.Errorf("%s %q: %s", flag, text, wrong)}
		}
		values[name] = value
	}
	var f match.Flow
	b, err := json.Marshal(values)
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	return f, err
}

func printDefinitions(w io.Writer, all []bandwidth.DefinitionInfo) {
	fmt.Fprintln(w, "NAME\tRATE\tMATCH\tIDLE TIMEOUT\tORIGIN")
	for _, d := range all {
		idle := d.IdleTimeout
		if idle == "" {
			idle = "30s"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", d.Name, bitRate(float64(d.Rate)), flowText(d.Match), idle, d.Origin)
		for _, n := range d.Notes {
			fmt.Fprintf(w, "\t\t-> %s\n", n)
		}
	}
}

// flowText is a description in one line.
func flowText(f match.Flow) string {
	b, err := json.Marshal(f)
	if err != nil {
		return err.Error()
	}
	values := map[string]string{}
	if err := json.Unmarshal(b, &values); err != nil {
		return err.Error()
	}
	words := make([]string, 0, len(values))
	for name, value := range values {
		words = append(words, name+"="+value)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func qosFlowsCommand(app *App) *cobra.Command {
	return GetCommand(app, "flows", "List the critical flows, where they go, and what they are promised", qosPath+"flows", func(w io.Writer, all []bandwidth.Record) {
		fmt.Fprintln(w, "FLOW\tDEFINITION\tSTATE\tRATE\tSENDS\tMOVES\tPATH OR REASON")
		for _, f := range all {
			where := f.Reason
			if f.State == bandwidth.StateAccepted || where == "" {
				where = strings.TrimSuffix(hopsText(f.Path)+": "+f.Reason, ": ")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", f.Flow, f.Definition, f.State, bitRate(float64(f.Rate)), bitRate(float64(f.Throughput)), f.Moves, where)
		}
	})
}

func qosRefusalsCommand(app *App) *cobra.Command {
	return GetCommand(app, "refusals", "List the switches where critical flows are not recognised, and why", qosPath+"refusals", func(w io.Writer, all []bandwidth.Refusal) {
		fmt.Fprintln(w, "SWITCH\tREASON")
		for _, r := range all {
			fmt.Fprintf(w, "%s\t%s\n", r.Switch, r.Reason)
		}
	})
}

func hopsText(hops []bandwidth.Hop) string {
	words := make([]string, len(hops))
	for i, h := range hops {
		words[i] = h.Switch.String()
	}
	return strings.Join(words, " > ")
}

func qosReservationsCommand(app *App) *cobra.Command {
	return GetCommand(app, "reservations", "List what is promised on links", qosPath+"reservations", func(w io.Writer, all []plugin.Reservation) {
		fmt.Fprintln(w, "LINK FROM\tCAPACITY\tUSED\tPROMISED\tAVAILABLE\tPROMISES")
		for _, r := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\n", r.Link, bitRate(float64(r.Capacity)), bitRate(float64(r.Used)),
				bitRate(float64(r.Promised)), bitRate(float64(r.Available)), len(r.For))
		}
	})
}
