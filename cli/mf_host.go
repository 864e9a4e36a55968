package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/mobilityfirst/host"
	"github.com/sluice-net/sluice/mobilityfirst/hostapi"
)

func mfHostCommand(app *App) *cobra.Command {
	var o host.Options
	memory, socket, group := config.Size(host.DefaultMemory), hostapi.DefaultSocket, ""
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Bring chunks to names and from them, for applications on this host",
		Long: `Runs until it gets SIGINT or SIGTERM, as root or with CAP_NET_RAW. Applications, "sluice mf
send" and "recv" among them, attach names of theirs at --socket, and send chunks to other
names. It finds these by asking on its interfaces, with frames of EtherType 0x27c0, and
keeps each chunk until its receiver has taken it. Whoever answers has to prove that the
name is his. It needs no addresses, and does nothing to the interfaces or their traffic.`,
		Example: `  sluice mf host --interface eth0
  sluice mf host --interface eth0 --interface wlan0 --group users`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case len(o.Interfaces) == 0:
				return &command.UsageError{Err: errors.New("--interface is missing: one on which others are, like eth0")}
			case memory < 16*host.MaxChunk:
				return &command.UsageError{Err: fmt.Errorf("--memory %v: want at least %v", memory, config.Size(16*host.MaxChunk))}
			case o.Keep < time.Second || o.Keep > 24*time.Hour:
				return &command.UsageError{Err: fmt.Errorf("--keep %v: want 1s to 24h", o.Keep)}
			}
			id, err := groupID(group)
			if err != nil {
				return &command.UsageError{Err: fmt.Errorf("--group: %w", err)}
			}
			o.Memory, o.Log = int(memory), slog.New(slog.NewTextHandler(app.Err, nil))
			hangups := catchHangups()
			defer hangups.stop()
			hangups.serve(cmd.Context(), func(context.Context) {
				o.Log.Info("there is no configuration to read again; flags need a restart")
			})
			return runNamedHost(cmd.Context(), o, socket, id)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Interfaces, "interface", nil, "interface on which others are; may be given several times")
	flags.StringVar(&socket, "socket", socket, "where applications attach names")
	flags.StringVar(&group, "group", "", "group whose members may, beside root")
	flags.TextVar(&memory, "memory", memory, "how much it keeps of chunks that have come and are not taken")
	flags.DurationVar(&o.Keep, "keep", host.DefaultKeep, "how long it keeps a chunk that nobody takes")
	return cmd
}

// runNamedHost runs a host with its socket until ctx ends.
func runNamedHost(ctx context.Context, o host.Options, socket string, group int) error {
	l, err := listen.Unix(socket, group)
	if err != nil {
		return err
	}
	h := host.New(o)
	all := tasks.New()
	defer all.Stop()
	all.Start(func(context.Context) { h.Run(ctx) }) // and so its endpoints close before Serve waits for who uses them
	o.Log.Info("host runs", "socket", socket, "interfaces", o.Interfaces)
	err = h.Serve(ctx, listen.New(l, func(err error) { o.Log.Warn("applications", "error", err) }))
	c := h.Counters()
	o.Log.Info("host ends", "taken", c.Taken, "not_taken", c.NotTaken, "delivered", c.Delivered, "frames", c.Frames, "sent_again", c.Again)
	return err
}
