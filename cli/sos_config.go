package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/sos/plugin"
)

func sosWhitelistCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "whitelist", Short: "Say which transfers are carried",
		Example: `  sluice sos whitelist add --from 10.0.1.0/24 --to 10.0.2.80 --port 443
  sluice sos whitelist list
  sluice sos whitelist remove 5d41402abc4b`,
	}
	list := GetCommand(app, "list", "List the entries", sosPath+"whitelist", printSOSEntries)
	remove := RemoveCommand(app, "remove ID", "Remove an entry; transfers under way go on", sosPath+"whitelist")
	cmd.AddCommand(list, sosAllowCommand(app), remove)
	return cmd
}

func sosAllowCommand(app *App) *cobra.Command {
	var s plugin.EntrySpec
	var start, stop string
	var encrypt bool
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Add an entry",
		Example: `  sluice sos whitelist add --from 10.0.1.0/24 --to 10.0.2.80 --port 443
  sluice sos whitelist add --from 10.0.1.0/24 --to 10.0.2.80 --port 8000-8099 \
    --stop 2027-01-01T00:00:00Z --connections 8`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err1, err2 error
			s.Start, err1 = timeFlag("start", start)
			s.Stop, err2 = timeFlag("stop", stop)
			if err := errors.Join(err1, err2); err != nil {
				return &command.UsageError{Err: err}
			}
			if cmd.Flags().Changed("tls") {
				s.Tuning.TLS = &encrypt
			}
			var e plugin.Entry
			if err := app.Send(cmd, http.MethodPost, sosPath+"whitelist", s, &e); err != nil {
				return err
			}
			return app.Print(e, func(w io.Writer) { printSOSEntries(w, []plugin.EntryInfo{{Entry: e}}) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Name, "name", "", "what the entry is for")
	f.StringSliceVar(&s.Clients, "from", nil, "who may: address or prefix; may be repeated")
	f.StringSliceVar(&s.Servers, "to", nil, "to which server: address or prefix; may be repeated")
	f.StringSliceVar(&s.Ports, "port", nil, "at which port of the server: port or range; may be repeated")
	f.StringVar(&start, "start", "", "when it begins, like 2027-01-01T00:00:00Z; now, if left out")
	f.StringVar(&stop, "stop", "", "when it ends; never, if left out")
	tuningFlags(f, &s.Tuning, &encrypt)
	return cmd
}

func tuningFlags(f *pflag.FlagSet, t *plugin.Tuning, encrypt *bool) {
	f.IntVar(&t.Connections, "connections", 0, "connections between the agents; 0: as configured")
	f.IntVar(&t.ChunkBytes, "chunk-bytes", 0, "bytes that travel on one connection at a time; 0: as configured")
	f.IntVar(&t.Queue, "queue", 0, "chunks by which one connection may run ahead; 0: as configured")
	f.IntVar(&t.Paths, "paths", 0, "disjoint paths to spread the connections over; 0: as configured")
	f.StringVar(&t.Transport, "transport", "", "how the agents speak to each other")
	f.StringVar(&t.CongestionControl, "congestion-control", "", "congestion control between the agents")
	f.BoolVar(encrypt, "tls", false, "encrypt the data between the agents")
}

func timeFlag(name, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // left out
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, fmt.Errorf("--%s %q: write a time like 2027-01-01T00:00:00Z", name, text)
	}
	return &t, nil
}

func printSOSEntries(w io.Writer, all []plugin.EntryInfo) {
	fmt.Fprintln(w, "ID\tNAME\tCLIENTS\tSERVERS\tPORTS\tSTART\tSTOP")
	date := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Local().Format(time.DateTime)
	}
	for _, e := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.Name, list(e.Clients), list(e.Servers), list(e.Ports), date(e.Start), date(e.Stop))
		for _, n := range e.Notes {
			fmt.Fprintf(w, "\t\t\t-> %s\n", n)
		}
	}
}

// list joins what prints itself.
func list[T fmt.Stringer](items []T) string {
	var words []string
	for _, i := range items {
		words = append(words, i.String())
	}
	return strings.Join(words, ",")
}

func sosConfigCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show or change the configuration"}
	get := GetCommand(app, "get", "Show the configuration", sosPath+"config", printSOSConfig)
	set := &cobra.Command{
		Use: "set NAME=VALUE...", Short: "Change the configuration; what is left out stays",
		Example: "  sluice sos config set metric=hops connections=8",
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := sosChange(cmd, app, args)
			if err != nil {
				return err
			}
			var c plugin.Config
			if err := app.Send(cmd, http.MethodPatch, sosPath+"config", change, &c); err != nil {
				return err
			}
			return app.Print(c, func(w io.Writer) { printSOSConfig(w, c) })
		},
	}
	cmd.AddCommand(get, set)
	return cmd
}

// sosChange makes a change of the words NAME=VALUE. The parameters of transfers
// are changed one by one here, and as a whole in the API.
func sosChange(cmd *cobra.Command, app *App, args []string) (map[string]any, error) {
	if len(args) == 0 {
		return nil, &command.UsageError{Err: errors.New("sluice sos config set: NAME=VALUE is missing")}
	}
	names, tuning := jsonNames(plugin.ConfigChange{}), jsonNames(plugin.Tuning{})
	change, inner := map[string]any{}, map[string]any{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		switch {
		case ok && slices.Contains(tuning, name):
			inner[name] = scalar(value)
		case ok && name != "tuning" && slices.Contains(names, name):
			change[name] = scalar(value)
		default:
			all := slices.DeleteFunc(append(names, tuning...), func(s string) bool { return s == "tuning" })
			return nil, &command.UsageError{Err: fmt.Errorf("%q: write NAME=VALUE with a name out of %s", arg, strings.Join(all, ", "))}
		}
	}
	if len(inner) > 0 {
		var now struct {
			Tuning map[string]any `json:"tuning"`
		}
		if err := app.Send(cmd, http.MethodGet, sosPath+"config", nil, &now); err != nil {
			return nil, err
		}
		merged := map[string]any{}
		maps.Copy(merged, now.Tuning)
		maps.Copy(merged, inner)
		change["tuning"] = merged
	}
	return change, nil
}

// scalar reads a value as JSON would have it: a number, a truth value, or text.
func scalar(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if b, err := strconv.ParseBool(s); err == nil {
		return b
	}
	return s
}

func jsonNames(v any) []string {
	var names []string
	for f := range reflect.TypeOf(v).Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

func printSOSConfig(w io.Writer, c plugin.Config) {
	var flat map[string]any
	b, err := json.Marshal(c)
	if err != nil || json.Unmarshal(b, &flat) != nil {
		fmt.Fprintf(w, "%+v\n", c)
		return
	}
	if t, ok := flat["tuning"].(map[string]any); ok {
		delete(flat, "tuning")
		maps.Copy(flat, t)
	}
	for _, name := range slices.Sorted(maps.Keys(flat)) {
		fmt.Fprintf(w, "%s\t%v\n", name, flat[name])
	}
}
