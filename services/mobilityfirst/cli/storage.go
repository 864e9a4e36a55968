package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/storage"
)

// defaultCustody is the default folder of a storage node.
const defaultCustody = "/var/lib/sluice/custody"

func mfStorageCommand(app *commands.App) *cobra.Command {
	var a attachment
	var metrics commands.MetricsServer
	var ctl controlServer
	var known []string
	o := storage.Options{Dir: defaultCustody, Keep: storage.DefaultKeep}
	size := config.Size(storage.DefaultSize)
	cmd := &cobra.Command{
		Use:   "storage",
		Short: "Store chunks for names that are away, and deliver them later",
		Long: `Runs a storage node until it gets SIGINT or SIGTERM, with the name that belongs to --name-key.
Hosts that run with --storage and this name send it the chunks that may wait, as "sluice mf
send --delay-tolerant" does. It stores them on disk, and delivers them when their destination
is present and the path to it is good. Chunks that it has taken over are not lost if the node
or the machine stops. Senders sign their chunks, so the node cannot forge or change them;
it can read them.

One sender may use an eighth of the size that others leave. Creating names costs nothing, so all
senders at one place, which is a neighbour of the node's host or a far host's address, may use
half of what those at other places leave. --known keeps half for the senders that it lists.`,
		Example: `  sluice mf storage --name-key storage.key
  sluice mf host --interface eth0 --storage 0c5f1e7a9b3d2c4e6f8091a2b3c4d5e6f7081920
  sluice mf storage list`,
		Args: command.NoArgs,
		RunE: commands.FlagDaemon(app, func(cmd *cobra.Command, _ []string, log *slog.Logger) error {
			switch {
			case a.key == "":
				return &command.UsageError{Err: errors.New("--name-key is missing: hosts have to know the node's name; \"sluice mf name new\" creates one")}
			case size < storage.MinSize:
				return &command.UsageError{Err: fmt.Errorf("--size %v: want at least %v", size, config.Size(storage.MinSize))}
			case o.Keep < time.Minute || o.Keep > custody.MaxKept:
				return &command.UsageError{Err: fmt.Errorf("--keep %v: want 1m to %v", o.Keep, custody.MaxKept)}
			}
			for _, text := range known {
				name, err := parseName(text)
				if err != nil {
					return err
				}
				o.Known = append(o.Known, name)
			}
			o.Size, o.Log = int64(size), log
			return runStorage(cmd.Context(), &a, o, &metrics, &ctl)
		}),
	}
	cmd.AddCommand(mfStorageListCommand(app))
	a.flags(cmd)
	flags := cmd.Flags()
	metrics.Flag(flags)
	ctl.flags(flags)
	flags.StringVar(&o.Dir, "dir", o.Dir, "folder of the chunks, which only this process may use")
	flags.TextVar(&size, "size", size, "maximum size on disk; one sender may use an eighth of what others leave, and all at one place half")
	flags.StringSliceVar(&known, "known", nil, "names of senders for which half of the size is kept free from all others")
	flags.DurationVar(&o.Keep, "keep", o.Keep, "maximum time for which it keeps a chunk")
	return cmd
}

// runStorage runs a storage node, and logs at its end what it has done.
func runStorage(ctx context.Context, a *attachment, o storage.Options, metrics *commands.MetricsServer, ctl *controlServer) error {
	if err := errors.Join(metrics.Open(), ctl.open()); err != nil {
		return err
	}
	host, err := a.open(ctx)
	if err != nil {
		return err
	}
	o.Host = host
	n, err := storage.New(o)
	if err != nil {
		return errors.Join(err, host.Close())
	}
	m := newMetrics("mf_storage", []total{
		{"chunks_total", "Chunks, by what has become of them: kept, and of these handed_on and lost; refused.", func() map[string]uint64 {
			c := n.Counters()
			return map[string]uint64{"kept": c.Kept, "handed_on": c.HandedOn, "refused": c.Refused, "lost": c.Lost}
		}},
	}, []gauge{
		{"chunks", "Chunks in custody.", func() float64 { return float64(n.Counters().Chunks) }},
		{"destinations", "Names for which there are chunks in custody.", func() float64 { return float64(n.Counters().Destinations) }},
		{"bytes", "What they count of the size.", func() float64 { return float64(n.Counters().Bytes) }},
	})
	defer metrics.Serve(m, o.Log)()
	stop, err := ctl.serve(nodeapi.Options{Log: o.Log, Key: a.owner, Report: n.Report, Custody: n.Custody, Metrics: m})
	if err != nil {
		return errors.Join(err, n.Close())
	}
	defer stop()
	c := n.Counters()
	o.Log.Info("storage node runs", "name", host.Name, "dir", o.Dir, "chunks", c.Chunks, "destinations", c.Destinations)
	err = n.Run(ctx)
	c = n.Counters()
	o.Log.Info("storage node ends", "kept", c.Kept, "handed_on", c.HandedOn, "refused", c.Refused, "lost", c.Lost, "chunks", c.Chunks, "destinations", c.Destinations)
	return err
}

// custodyRow describes the chunks in a storage node for one name.
type custodyRow struct {
	Destination frame.GUID `json:"destination"`
	Chunks      int        `json:"chunks"`
	Bytes       int64      `json:"bytes"`
	Senders     int        `json:"senders"`
	Oldest      time.Time  `json:"oldest"`
	Newest      time.Time  `json:"newest"`
	senders     map[frame.GUID]struct{}
}

func mfStorageListCommand(app *commands.App) *cobra.Command {
	dir := defaultCustody
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the names for which a storage node has chunks",
		Long:  `Reads the folder of a storage node, whether the node runs or not.`,
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := storage.List(dir)
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("%w (--dir is the folder of \"sluice mf storage\")", err)
			}
			if err != nil {
				return err
			}
			list := byDestination(all)
			return app.Print(list, func(w io.Writer) { commands.Table[custodyRow]("")(w, list) })
		},
	}
	cmd.Flags().StringVar(&dir, "dir", dir, "folder of the chunks")
	return cmd
}

func byDestination(all []storage.Kept) (list []custodyRow) {
	of := map[frame.GUID]*custodyRow{}
	for _, k := range all {
		d := of[k.Destination]
		if d == nil {
			d = &custodyRow{Destination: k.Destination, Oldest: k.Since, senders: map[frame.GUID]struct{}{}}
			of[k.Destination] = d
		}
		d.Chunks++
		d.Bytes += int64(k.Size)
		d.senders[k.Source] = struct{}{}
		if k.Since.Before(d.Oldest) {
			d.Oldest = k.Since
		}
		if k.Since.After(d.Newest) {
			d.Newest = k.Since
		}
	}
	for _, d := range of {
		d.Senders = len(d.senders)
		list = append(list, *d)
	}
	slices.SortFunc(list, func(a, b custodyRow) int { return bytes.Compare(a.Destination[:], b.Destination[:]) })
	return list
}
