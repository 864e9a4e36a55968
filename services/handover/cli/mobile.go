package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/mobile"
	"github.com/sluice-net/sluice/services/handover/mobile/orders"
)

func mobileCommand(app *commands.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mobile",
		Short: "Keep a device's connections while it moves between networks",
		Long: `The daemon of a mobile device. Applications use one virtual interface, which has
one address wherever the device is; the daemon chooses which interface carries
its packets, gets the address by DHCP, and moves it from one to the other.`,
	}
	cmd.AddCommand(mobileRunCommand(app), mobileStatusCommand(app), mobileMoveCommand(app), mobileRestoreCommand(app))
	return cmd
}

func mobileRunCommand(app *commands.App) *cobra.Command {
	return commands.Daemon(app, &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Long: `Runs the daemon until it gets SIGINT or SIGTERM, and then restores the device: it
removes the virtual interface, and gives the others their addresses and routes
again. If an earlier daemon was killed, its changes are restored, too.`,
		Example: `  sluice config example mobile > mobile.yaml
  sluice mobile run --config mobile.yaml`,
	}, DefaultMobile, func(ctx context.Context, r *commands.Running[*Mobile]) error {
		r.Reloads(ctx, nil)
		m, err := mobileConfig(r.Config, r.Log, true)
		if err != nil {
			return err
		}
		// The daemon works for a moment a few times a second. With more processors the Go
		// scheduler wakes another thread each time to look for work, which takes a third of
		// the daemon's CPU time.
		runtime.GOMAXPROCS(1)
		return mobile.Run(ctx, m)
	})
}

// mobileConfig converts the configuration file into the daemon's configuration. keep stores the MAC
// address that is derived for the virtual interface, so that later runs use it again.
func mobileConfig(c *Mobile, log *slog.Logger, keep bool) (mobile.Config, error) {
	m := mobile.Config{
		Device: c.Device, StateDir: c.StateDir, Socket: c.Socket, SocketGroup: -1,
		VNI: c.VNI.Name, MTU: c.VNI.MTU, Overlap: c.Datapath.Overlap,
		Policy: c.Policy, Probe: mobile.Probe{Interval: c.Probe.Interval, Window: c.Probe.Window},
		HostName: c.DHCP.HostName, Retransmit: c.DHCP.Retransmit, AttachTimeout: c.DHCP.Timeout, Release: c.DHCP.Release,
		Metric: c.Metric, Resolver: c.Resolver, Version: version.Get().Version, Log: log,
	}
	for _, name := range c.Names() {
		m.Interfaces = append(m.Interfaces, mobile.Interface{Name: name, Cost: c.Interfaces[name].Cost})
	}
	var err error
	if m.Device == "" {
		if m.Device, err = os.Hostname(); err != nil {
			return m, fmt.Errorf("device: %w", err)
		}
	}
	if c.VNI.MAC != "" {
		m.VNIMAC, err = openflow.ParseMAC(c.VNI.MAC)
	} else {
		m.VNIMAC, err = mobile.ChooseVNIMAC(c.StateDir, c.Names(), keep)
	}
	if err != nil {
		return m, fmt.Errorf("vni.mac: %w", err)
	}
	if m.SocketGroup, err = commands.GroupID(c.SocketGroup); err != nil {
		return m, fmt.Errorf("socket_group: %w", err)
	}
	return m, mobileKey(c, &m)
}

// mobileKey sets the parts of the daemon's configuration that need the device's key: the signing of
// DHCP messages, and the source of orders.
func mobileKey(c *Mobile, m *mobile.Config) error {
	if c.KeyFile == "" {
		return nil
	}
	key, err := mobile.ReadKey(c.KeyFile)
	if err != nil {
		return fmt.Errorf("key_file: %w", err)
	}
	m.Sign = func(msg *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) error { return dhcp.Sign(key, msg, src, now) }
	if c.Orders.Server == "" {
		return nil
	}
	o := orders.Options{Server: c.Orders.Server, Device: m.Device, Key: key}
	if o.TLS, err = pki.Client(pki.Files{CA: c.Orders.CA}); err != nil {
		return fmt.Errorf("orders.ca: %w", err)
	}
	o.TLS.MinVersion = tls.VersionTLS13
	source, err := orders.New(o)
	if err != nil {
		return fmt.Errorf("orders: %w", err)
	}
	m.Orders = source
	return nil
}

func mobileRestoreCommand(app *commands.App) *cobra.Command {
	var flags commands.ConfigFlags
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore the device after a daemon was killed",
		Long: `Restores what a killed daemon has changed, if no daemon is to run again. (A daemon
that runs again does so by itself.)`,
		Example: `  sluice mobile restore --config mobile.yaml`,
		Args:    command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := DefaultMobile()
			if err := config.Load(flags.Sources(), cfg); err != nil {
				return err
			}
			log, _, err := commands.NewLogger(app.Err, cfg.Log)
			if err != nil {
				return err
			}
			m, err := mobileConfig(cfg, log, false)
			if err != nil {
				return err
			}
			n, err := mobile.Restore(cmd.Context(), m)
			if err == nil {
				app.Printf("%d changes undone", n)
			}
			return err
		},
	}
	flags.Register(cmd)
	return cmd
}

// socketFlag adds the flag --socket to a command that talks to the daemon, and returns its value: the
// path of the daemon's control socket.
func socketFlag(cmd *cobra.Command) *string {
	var socket string
	command.EnvFlag(cmd.Flags(), &socket, "socket", "", "SLUICE_SOCKET", DefaultMobile().Socket, "control socket of the daemon")
	return &socket
}

func mobileMoveCommand(app *commands.App) *cobra.Command {
	var auto, once bool
	var hold time.Duration
	cmd := &cobra.Command{
		Use:   "move [INTERFACE]",
		Short: "Move the device to an interface, or let it choose again",
		Long: `Moves the device to an interface and keeps it there, as long as that has a link,
until another command, or for the time of --for. The command returns when the
device has moved. A device that uses the interface already joins its network again.`,
		Example: `  sluice mobile move wlan0
  sluice mobile move wwan0 --for 10m
  sluice mobile move --auto`,
		Args: func(cmd *cobra.Command, args []string) error {
			if auto {
				return command.NoArgs(cmd, args)
			}
			return command.ExactArgs("INTERFACE")(cmd, args)
		},
	}
	socket := socketFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if hold < 0 || once && hold > 0 {
			return &command.UsageError{Err: errors.New("--for takes a duration, and does not go together with --once")}
		}
		c := mobile.Dial(*socket)
		defer c.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), app.Timeout)
		defer cancel()
		if auto {
			if err := c.Auto(ctx); err != nil {
				return err
			}
			app.Printf("the device chooses by its policy again")
			return nil
		}
		seconds := -1.0
		switch {
		case once:
			seconds = 0
		case hold > 0:
			seconds = hold.Seconds()
		}
		m, err := c.Move(ctx, mobile.MoveRequest{Interface: args[0], Hold: seconds})
		if err != nil {
			return err
		}
		return app.Print(m, func(w io.Writer) { commands.Fields(w, m) })
	}
	cmd.Flags().BoolVar(&auto, "auto", false, "leave the choice to the device's policy again")
	cmd.Flags().BoolVar(&once, "once", false, "move, but let the policy decide from then on")
	cmd.Flags().DurationVar(&hold, "for", 0, "how long to stay there; without it, until another command")
	return cmd
}

func mobileStatusCommand(app *commands.App) *cobra.Command {
	var moves int
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon, its interfaces and its latest moves",
		Example: `  sluice mobile status
  sluice mobile status --moves 20 --json`,
		Args: command.NoArgs,
	}
	interfaces := commands.Table[mobile.InterfaceStatus]("name mac present link silent sends receives signal=DBM loss rtt_ns=RTT cost sent_packets=SENT received_packets=RECEIVED doubled_packets=TWICE barred")
	restored := commands.Table[drift.Count]("thing=RESTORED times last error")
	moved := commands.Table[mobile.Move]("at=MOVED from to lease_ns=LEASE switch_ns=SWITCH why error")
	socket := socketFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := mobile.Dial(*socket)
		defer c.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), app.Timeout)
		defer cancel()
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if n := len(s.Moves) - max(moves, 0); n > 0 {
			s.Moves = s.Moves[n:]
		}
		return app.Print(s, func(w io.Writer) {
			all, latest, drifted := s.Interfaces, s.Moves, s.Drift
			s.Interfaces, s.Moves, s.Drift = nil, nil, nil
			commands.Fields(w, s)
			fmt.Fprintln(w)
			interfaces(w, all)
			fmt.Fprintln(w)
			moved(w, latest)
			if len(drifted) > 0 {
				fmt.Fprintln(w)
				restored(w, drifted)
			}
		})
	}
	cmd.Flags().IntVar(&moves, "moves", 5, "how many of the latest moves to show, at most 64")
	return cmd
}
