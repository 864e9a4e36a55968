package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/access"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

func mfAccessCommand(app *commands.App) *cobra.Command {
	o := access.Options{Keep: access.DefaultKeep, Silent: access.DefaultSilent}
	var metrics commands.MetricsServer
	var hosts, others []string
	memory := config.Size(access.DefaultMemory)
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Serve hosts of the original release of MobilityFirst",
		Long: `Runs an access router until it gets SIGINT or SIGTERM, as root or with CAP_NET_RAW, beside
a "sluice mf host" on the same machine. Hosts of the original release that are on its
interfaces exchange chunks with all names through it, and with each other.

Each of them is declared: its GUID, the file of the key of the name by which others know
it, and the only Ethernet address from which it is accepted. Without an address the first
that is heard is used until it is silent. GUIDs of the original release prove nothing, so
this is only as safe as the switches that keep hosts from using each other's addresses.`,
		Example: `  sluice mf name new camera.key
  sluice mf access --interface eth1 \
    --host 1100000000000000000000000000000000000001=camera.key,02:00:00:00:00:01`,
		Args: command.NoArgs,
		RunE: commands.FlagDaemon(app, func(cmd *cobra.Command, _ []string, log *slog.Logger) error {
			switch {
			case len(o.Interfaces) == 0:
				return &command.UsageError{Err: errors.New("--interface is missing: an interface of the hosts, like eth1")}
			case len(hosts) == 0:
				return &command.UsageError{Err: errors.New("--host is missing: a host to serve, as GUID=KEYFILE or GUID=KEYFILE,MAC")}
			case memory < access.MinMemory:
				return &command.UsageError{Err: fmt.Errorf("--memory %v: want at least %v", memory, config.Size(access.MinMemory))}
			case o.Keep < time.Second || o.Keep > 24*time.Hour:
				return &command.UsageError{Err: fmt.Errorf("--keep %v: want 1s to 24h", o.Keep)}
			case o.Silent < time.Second || o.Silent > time.Hour:
				return &command.UsageError{Err: fmt.Errorf("--silent %v: want 1s to 1h", o.Silent)}
			}
			for _, text := range hosts {
				h, err := parseServed(text)
				if err != nil {
					return fmt.Errorf("--host %s: %w", text, err)
				}
				o.Hosts = append(o.Hosts, h)
			}
			var err error
			if o.Others, err = parseOthers(others); err != nil {
				return err
			}
			o.Memory, o.Log = int(memory), log
			return runAccess(cmd.Context(), o, &metrics)
		}),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Interfaces, "interface", nil, "interface of the hosts; may be given several times")
	flags.StringArrayVar(&hosts, "host", nil, "host to serve, as GUID=KEYFILE or GUID=KEYFILE,MAC; may be given several times")
	flags.StringArrayVar(&others, "other", nil, "host that another router serves, as GUID=NAME; may be given several times")
	socketFlag(flags, &o.Socket)
	flags.TextVar(&memory, "memory", memory, "memory for the chunks that each host sends")
	flags.DurationVar(&o.Keep, "keep", o.Keep, "how long it keeps a chunk that its destination does not take")
	flags.DurationVar(&o.Silent, "silent", o.Silent, "time after which a silent host counts as gone")
	metrics.Flag(flags)
	return cmd
}

// parseServed parses a declared host: GUID=KEYFILE or GUID=KEYFILE,MAC.
func parseServed(text string) (h access.Host, err error) {
	guid, rest, ok := strings.Cut(text, "=")
	file, mac, pinned := strings.Cut(rest, ",")
	if !ok || file == "" {
		return h, &command.UsageError{Err: errors.New("want GUID=KEYFILE or GUID=KEYFILE,MAC")}
	}
	if h.GUID, err = frame.ParseGUID(guid); err != nil {
		return h, &command.UsageError{Err: err}
	}
	if pinned {
		if h.MAC, err = openflow.ParseMAC(mac); err != nil {
			return h, &command.UsageError{Err: err}
		}
	}
	h.Key, err = readKey(file)
	return h, err
}

// parseOthers parses hosts that other routers serve, each as GUID=NAME.
func parseOthers(all []string) (map[frame.GUID]frame.GUID, error) {
	others := map[frame.GUID]frame.GUID{}
	for _, text := range all {
		first, second, ok := strings.Cut(text, "=")
		if !ok {
			return nil, &command.UsageError{Err: fmt.Errorf("--other %s: want GUID=NAME", text)}
		}
		guid, err := frame.ParseGUID(first)
		name, wrong := frame.ParseGUID(second)
		if err := errors.Join(err, wrong); err != nil {
			return nil, &command.UsageError{Err: fmt.Errorf("--other %s: %w", text, err)}
		}
		if _, twice := others[guid]; twice {
			return nil, &command.UsageError{Err: fmt.Errorf("--other %s: this GUID has a name already", text)}
		}
		others[guid] = name
	}
	return others, nil
}

// runAccess runs an access router, and logs at its end what it has done.
func runAccess(ctx context.Context, o access.Options, metrics *commands.MetricsServer) error {
	r, err := access.New(o)
	if err != nil {
		return &command.UsageError{Err: err}
	}
	if err := metrics.Open(); err != nil {
		return err
	}
	defer metrics.Serve(newMetrics("mf_access", []total{
		{"chunks_total", "Chunks of hosts by what has become of them: taken, expired, left or invalid; and for hosts: delivered or refused.", func() map[string]uint64 {
			c := r.Counters()
			return map[string]uint64{"taken": c.Taken, "expired": c.Expired, "left": c.Left, "invalid": c.Invalid, "delivered": c.Delivered, "refused": c.Refused}
		}},
		{"frames_dropped_total", "Frames that nothing came of: of strangers, false claims, for which there was no room, malformed, in excess.", func() map[string]uint64 {
			c := r.Counters()
			return map[string]uint64{"stranger": c.Strangers, "claim": c.Claims, "no_room": c.NoRoom, "malformed": c.Malformed, "excess": c.Excess}
		}},
	}, []gauge{
		{"hosts", "Hosts that are there.", func() float64 { return float64(r.Counters().There) }},
		{"chunks", "Chunks of hosts that are kept.", func() float64 { return float64(r.Counters().Chunks) }},
		{"bytes", "What these count of the memory, with those that are coming.", func() float64 { return float64(r.Counters().Bytes) }},
	}), o.Log)()
	o.Log.Info("access router runs", "interfaces", o.Interfaces, "hosts", len(o.Hosts))
	r.Run(ctx)
	c := r.Counters()
	o.Log.Info("access router ends", "taken", c.Taken, "expired", c.Expired, "left", c.Left, "invalid", c.Invalid, "delivered", c.Delivered, "refused", c.Refused, "lost", c.Chunks)
	return nil
}
