package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/mobilityfirst/namestore"
	"github.com/sluice-net/sluice/mobilityfirst/plugin"
)

const mfPath = api.Prefix + "/" + plugin.Name + "/"

func mfCommand(app *App) *cobra.Command {
	cmd := group("mf", "Names that stay: chunks to them, and where they are (MobilityFirst)", `  sluice mf name new laptop.key
  sluice mf host --interface eth0
  sluice mf recv --name-key laptop.key > film.mp4
  sluice mf send 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930 film.mp4
  sluice mf gnrs --dir /var/lib/sluice/names`,
		mfHostCommand(app), mfSendCommand(app), mfRecvCommand(app), mfPingCommand(app), mfPerfCommand(app), mfProxyCommand(app), mfGNRSCommand(app), mfNameCommand(app),
		GetCommand(app, "paths", "List the paths between names that switches have labels for", mfPath+"paths", Table[plugin.PathInfo]("id ends hops lease")))
	cmd.Long = `A name (GUID) is the hash of a key, and stays when what has it moves. A host brings chunks to
names, whatever addresses are. The name service says where a name is, which nobody but the
owner of the key can tell it.`
	return cmd
}

// defaultNames is where a name service listens that is told nothing.
const defaultNames = "127.0.0.1:5001"

func mfGNRSCommand(app *App) *cobra.Command {
	listen, dir := defaultNames, "/var/lib/sluice/names"
	cache, names, limits := config.Size(namestore.DefaultCache), uint64(namestore.DefaultMaxNames), gnrs.DefaultLimits()
	cmd := &cobra.Command{
		Use:   "gnrs",
		Short: "Run a name service, which says where names are",
		Long: `Runs until it gets SIGINT or SIGTERM, and answers by UDP where names are, as the
original release of MobilityFirst asks it. It takes from everybody what the owner of a
name has signed, and has answered no write before the disk has it. What is older than what
it has, forged, or holds for more than a day, is refused.`,
		Example: `  sluice mf gnrs
  sluice mf gnrs --listen 192.0.2.1:5001 --dir /var/lib/sluice/names`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := netip.ParseAddrPort(listen)
			if err != nil {
				return &command.UsageError{Err: fmt.Errorf("--listen %s: want an address and a port, like %s", listen, defaultNames)}
			}
			if names == 0 || cache < 1<<20 || limits.Lookups < 1 || limits.Writes < 1 || limits.NewNames < 1 {
				return &command.UsageError{Err: errors.New("--names, --lookups, --writes and --new-names want at least 1, --cache at least 1MiB")}
			}
			log := slog.New(slog.NewTextHandler(app.Err, nil))
			hangups := catchHangups()
			defer hangups.stop()
			hangups.serve(cmd.Context(), func(context.Context) {
				log.Info("there is no configuration to read again; flags need a restart")
			})
			return serveNames(cmd.Context(), gnrs.Options{Listen: at, Limits: limits, Log: log}, namestore.Options{Dir: dir, MaxNames: names, Cache: int64(cache), Log: log})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", listen, "UDP address at which it is asked, one of this machine's")
	flags.StringVar(&dir, "dir", dir, "folder of the names, of this alone")
	flags.Uint64Var(&names, "names", names, "how many names it takes")
	flags.TextVar(&cache, "cache", cache, "how much of what is on disk it keeps in memory")
	flags.Float64Var(&limits.Lookups, "lookups", limits.Lookups, "how many questions one address may ask in a second")
	flags.Float64Var(&limits.Writes, "writes", limits.Writes, "how many times one address may write in a second")
	flags.Float64Var(&limits.NewNames, "new-names", limits.NewNames, "how many of these may be of names that are not there yet")
	return cmd
}

// serveNames runs a name service, and says at its end what it has done.
func serveNames(ctx context.Context, o gnrs.Options, names namestore.Options) (err error) {
	if o.Store, err = namestore.Open(names); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Store.Close()) }()
	s, err := gnrs.Listen(o)
	if err != nil {
		return err
	}
	o.Log.Info("name service runs", "listen", s.Addr(), "dir", names.Dir, "names", o.Store.Names())
	err = s.Run(ctx)
	c := s.Counters()
	o.Log.Info("name service ends", "lookups", c.Lookups, "writes", c.Writes, "malformed", c.Malformed, "dropped", c.Dropped, "names", o.Store.Names())
	return err
}
