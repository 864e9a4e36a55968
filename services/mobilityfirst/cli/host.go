package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst/content"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

func mfHostCommand(app *commands.App) *cobra.Command {
	var o host.Options
	var metrics commands.MetricsServer
	memory, socket, group, storage := config.Size(host.DefaultMemory), "", "", []string(nil)
	udp, names := uint16(0), ""
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Send and receive chunks for the names of applications on this host",
		Long: `Runs until it gets SIGINT or SIGTERM, as root or with CAP_NET_RAW. Applications, "sluice mf
send" and "recv" among them, attach their names at --socket, and send chunks to other
names. The host finds these by requests on its interfaces, with frames of EtherType 0x27c0, and
keeps each chunk until its receiver has taken it over. A host that answers has to prove that the
name is its own. It needs no addresses, and does not affect the interfaces or their traffic.

With --udp and --names it looks up names that are on none of its interfaces at a name
service ("sluice mf gnrs"), and reaches them by UDP over IPv4. It publishes its own names
there whenever its address changes.`,
		Example: `  sluice mf host --interface eth0
  sluice mf host --interface eth0 --interface wlan0 --group users
  sluice mf host --interface eth0 --udp 5028 --names 192.0.2.1:5001
  sluice mf host --interface eth0 --storage 0c5f1e7a9b3d2c4e6f8091a2b3c4d5e6f7081920`,
		Args: command.NoArgs,
		RunE: commands.FlagDaemon(app, func(cmd *cobra.Command, _ []string, log *slog.Logger) error {
			switch {
			case len(o.Interfaces) == 0 && udp == 0:
				return &command.UsageError{Err: errors.New("--interface is missing: an interface to other hosts, like eth0; or --udp and --names")}
			case (udp == 0) != (names == ""):
				return &command.UsageError{Err: errors.New("--udp and --names want each other: give both or neither")}
			case udp%2 != 0:
				return &command.UsageError{Err: fmt.Errorf("--udp %d: want an even port", udp)}
			case memory < 16*host.MaxChunk:
				return &command.UsageError{Err: fmt.Errorf("--memory %v: want at least %v", memory, config.Size(16*host.MaxChunk))}
			case o.Keep < time.Second || o.Keep > 24*time.Hour:
				return &command.UsageError{Err: fmt.Errorf("--keep %v: want 1s to 24h", o.Keep)}
			case o.KeptFor < time.Minute || o.KeptFor > custody.MaxKept:
				return &command.UsageError{Err: fmt.Errorf("--custody %v: want 1m to %v", o.KeptFor, custody.MaxKept)}
			}
			if cmd.Flags().Changed("custody") && len(storage) == 0 {
				return &command.UsageError{Err: errors.New("--custody wants --storage: it limits how long storage nodes keep chunks")}
			}
			for _, text := range storage {
				name, err := parseName(text)
				if err != nil {
					return err
				}
				o.Storage = append(o.Storage, name)
			}
			id, err := commands.GroupID(group)
			if err != nil {
				return &command.UsageError{Err: fmt.Errorf("--group: %w", err)}
			}
			if udp != 0 {
				server, err := netip.ParseAddrPort(names)
				if err != nil || !server.Addr().Unmap().Is4() {
					return &command.UsageError{Err: fmt.Errorf("--names %s: want the IPv4 address and port of a name service, like %s", names, defaultNames)}
				}
				resolver := gnrs.NewRoaming(server)
				defer resolver.Close()
				o.Far = &host.Far{Names: resolver, Addr: func() (netip.AddrPort, error) {
					at, err := resolver.Addr()
					return netip.AddrPortFrom(at, udp), err
				}}
			}
			if err := metrics.Open(); err != nil {
				return err
			}
			o.Near = []frame.GUID{content.Nearest()}
			o.Memory, o.Log = int(memory), log
			return runNamedHost(cmd.Context(), o, cmp.Or(socket, hostapi.DefaultSocket()), id, &metrics)
		}),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Interfaces, "interface", nil, "interface to other hosts; may be given several times")
	flags.Uint16Var(&udp, "udp", 0, "even UDP port for names that are on none of the interfaces")
	flags.StringVar(&names, "names", "", "IPv4 address and port of the name service for these names")
	socketFlag(flags, &socket)
	flags.StringVar(&group, "group", "", "group whose members may use the socket, beside root")
	flags.TextVar(&memory, "memory", memory, "memory for received chunks that are not taken over yet")
	flags.StringSliceVar(&storage, "storage", nil, "names of storage nodes for chunks that may wait; see \"sluice mf storage\"")
	flags.DurationVar(&o.KeptFor, "custody", host.DefaultKeptFor, "how long storage nodes may keep such a chunk")
	flags.DurationVar(&o.Keep, "keep", host.DefaultKeep, "how long it keeps a chunk that its receiver does not take")
	metrics.Flag(flags)
	return cmd
}

// runNamedHost runs a host with its socket until ctx ends.
func runNamedHost(ctx context.Context, o host.Options, socket string, group int, metrics *commands.MetricsServer) error {
	l, err := listen.Unix(socket, group)
	if err != nil {
		return err
	}
	h := host.New(o)
	defer metrics.Serve(newMetrics("mf_host", []total{
		{"chunks_total", "Chunks, by what has become of them: taken and not_taken of those that were sent, delivered of those that have come.", func() map[string]uint64 {
			c := h.Counters()
			return map[string]uint64{"taken": c.Taken, "not_taken": c.NotTaken, "delivered": c.Delivered}
		}},
		{"frames_total", "Frames that carried chunks: sent, and of these sent again.", func() map[string]uint64 {
			c := h.Counters()
			return map[string]uint64{"sent": c.Frames, "again": c.Again}
		}},
	}, nil), o.Log)()
	all := tasks.New()
	defer all.Stop()
	all.Start(func(context.Context) { h.Run(ctx) }) // Run closes the host's endpoints at its end, before Serve waits for the applications that use them
	o.Log.Info("host runs", "socket", socket, "interfaces", o.Interfaces)
	err = h.Serve(ctx, listen.New(l, func(err error) { o.Log.Warn("applications", "error", err) }))
	c := h.Counters()
	o.Log.Info("host ends", "taken", c.Taken, "not_taken", c.NotTaken, "delivered", c.Delivered, "frames", c.Frames, "sent_again", c.Again)
	return err
}
