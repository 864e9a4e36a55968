package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/nameservice"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
	"github.com/sluice-net/sluice/services/mobilityfirst/replicas"
)

// defaultNames is the default address of a name service.
const defaultNames = "127.0.0.1:5001"

// nameServer holds the flags of a name service.
type nameServer struct {
	listen, dir, self string
	domains           []string
	replicas          int
	cache             config.Size
	names             uint64
	limits            gnrs.Limits
	redis             redisFlags
}

func mfGNRSCommand(app *commands.App) *cobra.Command {
	var metrics commands.MetricsServer
	n := nameServer{
		dir: "/var/lib/sluice/names", replicas: replicas.DefaultK,
		cache: config.Size(namestore.DefaultCache), names: namestore.DefaultMaxNames, limits: gnrs.DefaultLimits(),
	}
	cmd := &cobra.Command{
		Use:   "gnrs",
		Short: "Run a name service, which stores where names are",
		Long: `Runs until it gets SIGINT or SIGTERM, and answers by UDP where names are, in the protocol of the
original release of MobilityFirst. It accepts records from everybody, if the owner of the
name has signed them, and acknowledges a write when it is on the disk. It refuses a record
that is older than its own, forged, or valid for more than a day.

With --redis the names are in a Redis Cluster, which several such services may share,
instead of a folder. A write is acknowledged when its master has it (with appendfsync always on
its disk) and --redis-replicas of its replicas have it in memory. While a node's settings are
weaker than --redis-fsync, nothing is written. A node that does not answer only affects its own
names.

With --domain, once for each domain, the name services of all of them act as one: each name is
kept by --replicas of them, which are computed from the name, and each service asks the nearest of
these for other names. All must be configured with the same domains. A domain that was away
receives what it has missed.`,
		Example: `  sluice mf gnrs
  sluice mf gnrs --listen 192.0.2.1:5001 --dir /var/lib/sluice/names
  sluice mf gnrs --self west --domain west=192.0.2.1:5001 --domain east=198.51.100.1:5001
  sluice mf gnrs --redis 192.0.2.7:6379,192.0.2.8:6379 --redis-user sluice \
    --redis-password-file /etc/sluice/redis.password --redis-replicas 1`,
		Args: command.NoArgs,
		RunE: commands.FlagDaemon(app, func(cmd *cobra.Command, _ []string, log *slog.Logger) error {
			o, err := n.options()
			if err != nil {
				return &command.UsageError{Err: err}
			}
			if err := metrics.Open(); err != nil {
				return err
			}
			o.Log = log
			s := nameservice.New(o)
			defer metrics.Serve(s.Metrics(), o.Log)()
			return s.Run(cmd.Context())
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&n.listen, "listen", "", "UDP address of the service, one of this machine's (default "+defaultNames+", or that of --self)")
	flags.StringVar(&n.dir, "dir", n.dir, "folder of the names, which only this process may use; with --redis, of the state of --domain")
	flags.StringArrayVar(&n.domains, "domain", nil, "a domain and the address of its name service, NAME=ADDRESS:PORT; once for each")
	flags.StringVar(&n.self, "self", "", "name of this domain")
	flags.IntVar(&n.replicas, "replicas", n.replicas, "number of domains that keep each name")
	flags.Uint64Var(&n.names, "names", n.names, "maximum number of names")
	flags.TextVar(&n.cache, "cache", n.cache, "size of the cache in memory")
	flags.Float64Var(&n.limits.Lookups, "lookups", n.limits.Lookups, "lookups that one address may send per second")
	flags.Float64Var(&n.limits.Writes, "writes", n.limits.Writes, "writes that one address may send per second")
	flags.Float64Var(&n.limits.NewNames, "new-names", n.limits.NewNames, "writes of new names that one address may send per second")
	n.redis.flag(flags)
	metrics.Flag(flags)
	return cmd
}

// options returns the options for the flags.
func (n *nameServer) options() (o nameservice.Options, err error) {
	if n.names == 0 || n.cache < 1<<20 || n.limits.Lookups < 1 || n.limits.Writes < 1 || n.limits.NewNames < 1 || n.replicas < 1 {
		return o, errors.New("--names, --lookups, --writes, --new-names and --replicas want at least 1, --cache at least 1MiB")
	}
	o = nameservice.Options{Dir: n.dir, MaxNames: n.names, Cache: int64(n.cache), Limits: n.limits, Self: n.self, Replicas: n.replicas}
	if o.Redis, err = n.redis.read(); err != nil {
		return o, err
	}
	for _, text := range n.domains {
		d, err := replicas.ParseDomain(text)
		if err != nil {
			return o, fmt.Errorf("--domain: %w", err)
		}
		o.Domains = append(o.Domains, d)
	}
	listen := n.listen
	if listen == "" && len(o.Domains) == 0 {
		listen = defaultNames
	}
	if listen != "" {
		if o.Listen, err = netip.ParseAddrPort(listen); err != nil {
			return o, fmt.Errorf("--listen %s: want an address and a port, like %s", listen, defaultNames)
		}
	}
	if _, err = o.At(); err != nil {
		return o, fmt.Errorf("--domain, --self and --listen: %w", err)
	}
	return o, nil
}
