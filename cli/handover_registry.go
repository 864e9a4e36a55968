package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/handover/plugin"
)

func handoverClassesCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "classes", Short: "Say how devices are moved, and what may move them",
		Example: `  sluice handover classes set vehicles --policy seamless --trigger signed --overlap 300ms
  sluice handover classes list`,
	}
	list := GetCommand(app, "list", "List the classes", handoverPath+"classes", printClasses)
	var s plugin.ClassSpec
	set := &cobra.Command{
		Use: "set NAME", Short: "Add a class, or replace one", Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var i plugin.ClassInfo
			if err := app.Send(cmd, http.MethodPut, handoverPath+"classes/"+url.PathEscape(args[0]), s, &i); err != nil {
				return err
			}
			return app.Print(i, func(w io.Writer) { printClasses(w, []plugin.ClassInfo{i}) })
		},
	}
	f := set.Flags()
	f.Var(command.Word(&s.Policy, "saving", "saving", "seamless"), "policy", "how its devices are moved: switched over, or sent to both places for a while")
	f.Var(command.Word(&s.Trigger, "", "signed", "ports", "open"), "trigger", "what may move them; left out: signed for devices with a key, ports for others")
	f.StringSliceVar(&s.Ports, "port", nil, "port where they may attach, for trigger ports; may be repeated")
	f.StringVar(&s.Overlap, "overlap", "", "how long after a seamless move packets still go to the old place, too")
	cmd.AddCommand(list, set, RemoveCommand(app, "remove NAME", "Remove a class that nothing refers to", handoverPath+"classes"))
	return cmd
}

func printClasses(w io.Writer, all []plugin.ClassInfo) {
	fmt.Fprintln(w, "NAME\tPOLICY\tTRIGGER\tOVERLAP\tPORTS\tORIGIN")
	for _, c := range all {
		trigger := c.Trigger
		if trigger == "" {
			trigger = "signed or ports"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, c.Policy, trigger, c.Overlap, strings.Join(c.Ports, ","), c.Origin)
	}
}

func handoverPoolsCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pools", Short: "Say which addresses devices get",
		Example: `  sluice handover pools set campus --prefix 10.8.0.0/24 --gateway 10.8.0.1 --lease-time 2h
  sluice handover pools list`,
	}
	list := GetCommand(app, "list", "List the pools with their use", handoverPath+"pools", printPools)
	var s plugin.PoolSpec
	set := &cobra.Command{
		Use: "set NAME", Short: "Add a pool, or replace one", Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var i plugin.PoolInfo
			if err := app.Send(cmd, http.MethodPut, handoverPath+"pools/"+url.PathEscape(args[0]), s, &i); err != nil {
				return err
			}
			return app.Print(i, func(w io.Writer) { printPools(w, []plugin.PoolInfo{i}) })
		},
	}
	f := set.Flags()
	f.StringVar(&s.Prefix, "prefix", "", "subnet that devices are told of")
	f.StringVar(&s.First, "first", "", "first address that is given out; left out: the first of the prefix")
	f.StringVar(&s.Last, "last", "", "last address that is given out; left out: the last of the prefix")
	f.StringVar(&s.Gateway, "gateway", "", "router that devices are told of")
	f.StringVar(&s.GatewayMAC, "gateway-mac", "", "the router's MAC address; left out: found by ARP at the roots")
	f.StringVar(&s.Server, "dhcp-server", "", "address of the DHCP server towards devices; left out: the router's")
	f.StringVar(&s.LeaseTime, "lease-time", "", "how long a lease holds; left out: 1h")
	f.StringSliceVar(&s.DNS, "dns", nil, "name server that devices are told of; may be repeated")
	f.IntVar(&s.MTU, "mtu", 0, "MTU that devices are told of; 0: none")
	f.StringVar(&s.Domain, "domain", "", "domain name that devices are told of")
	f.BoolVar(&s.Learn, "learn", false, "give addresses also to devices that nobody has registered")
	f.StringVar(&s.Class, "class", "", "class of the devices that it learns")
	f.StringVar(&s.Home, "home", "", "domain whose devices have these addresses; left out: our own")
	cmd.AddCommand(list, set, RemoveCommand(app, "remove NAME", "Remove a pool to which no device belongs", handoverPath+"pools"))
	return cmd
}

func printPools(w io.Writer, all []plugin.PoolInfo) {
	fmt.Fprintln(w, "NAME\tPREFIX\tFROM\tTO\tUSED\tROUTER\tLEASE\tLEARNS\tHOME\tORIGIN")
	for _, p := range all {
		router := p.Gateway + " at " + p.Router
		if p.Router == "" {
			router = p.Gateway + " not found"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\t%v\t%s\t%s\n", p.Name, p.Prefix, p.First, p.Last, p.Held, p.Size, router, p.LeaseTime, p.Learn, p.Home, p.Origin)
	}
}

func handoverDevicesCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "devices", Short: "Register, list and remove devices",
		Example: `  sluice handover devices set car7 --mac 02:00:00:00:07:01 --mac 02:00:00:00:07:02 --class vehicles
  sluice handover devices list --port 00000000000000a1
  sluice handover devices show car7`,
	}
	var port, class string
	list := &cobra.Command{
		Use: "list", Short: "List the devices and where they are", Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []plugin.DeviceInfo
			return app.get(cmd, handoverPath+"devices"+query("port", port, "class", class), &all, func(w io.Writer) { printDevices(w, all) })
		},
	}
	list.Flags().StringVar(&port, "port", "", "only devices at this port, or at this switch")
	list.Flags().StringVar(&class, "class", "", "only devices of this class")
	show := &cobra.Command{
		Use: "show ID", Short: "Show a device", Args: command.ExactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var d plugin.DeviceInfo
			return app.get(cmd, handoverPath+"devices/"+url.PathEscape(args[0]), &d, func(w io.Writer) { printDevice(w, d) })
		},
	}
	cmd.AddCommand(list, show, handoverDeviceSetCommand(app), RemoveCommand(app, "remove ID", "Remove a device with its lease and its rules", handoverPath+"devices"))
	return cmd
}

func handoverDeviceSetCommand(app *App) *cobra.Command {
	var s plugin.DeviceSpec
	var keyFile string
	cmd := &cobra.Command{
		Use: "set ID", Short: "Register a device, or replace what is registered", Args: command.ExactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keyFile != "" {
				b, err := os.ReadFile(keyFile)
				if err != nil {
					return fmt.Errorf("--key-file: %w", err)
				}
				s.Key = strings.TrimSpace(string(b))
			}
			if len(s.MACs) == 0 {
				return &command.UsageError{Err: fmt.Errorf("%s: --mac is missing: a device is known by the MAC addresses of its interfaces, like 02:00:00:00:07:01", cmd.CommandPath())}
			}
			var d plugin.DeviceInfo
			if err := app.Send(cmd, http.MethodPut, handoverPath+"devices/"+url.PathEscape(args[0]), s, &d); err != nil {
				return err
			}
			return app.Print(d, func(w io.Writer) { printDevices(w, []plugin.DeviceInfo{d}) })
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&s.MACs, "mac", nil, "MAC address of one of its interfaces; may be repeated. The first is the one that everybody beyond the edge sees")
	f.StringVar(&s.Class, "class", "", "its class")
	f.StringVar(&s.Pool, "pool", "", "pool of its address; left out: the only one there is")
	f.StringVar(&s.IP, "ip", "", "address that it always has; left out: one of the pool")
	f.StringVar(&keyFile, "key-file", "", "file with its key, 64 hex digits; left out: it has none")
	f.StringSliceVar(&s.Ports, "port", nil, "port where it may attach, for trigger ports; may be repeated")
	return cmd
}

func printDevices(w io.Writer, all []plugin.DeviceInfo) {
	fmt.Fprintln(w, "ID\tADDRESS\tAT\tSINCE\tPOLICY\tTRIGGER\tCLASS\tMACS\tRULES\tORIGIN\tERROR")
	for _, d := range all {
		since := ""
		if d.Since != nil {
			since = d.Since.Local().Format(time.DateTime)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", d.ID, d.IP, spot(d.At), since, d.Policy, d.Trigger, d.Class, strings.Join(d.MACs, ","), d.Rules, d.Origin, d.Error)
	}
}

func printDevice(w io.Writer, d plugin.DeviceInfo) {
	printDevices(w, []plugin.DeviceInfo{d})
	fmt.Fprintf(w, "\nway\t%s\n", strings.Join(d.Path, " "))
	if d.Second != nil {
		what := "just left"
		if d.Prepared {
			what = "prepared"
		}
		fmt.Fprintf(w, "%s\t%s\n", what, d.Second)
	}
	fmt.Fprintf(w, "pool\t%s\nstatic address\t%s\nhas a key\t%v\nports\t%s\ndaemon listens\t%v\n", d.Pool, d.Static, d.Keyed, strings.Join(d.Ports, ","), d.Daemon)
	if d.Home != "" {
		fmt.Fprintf(w, "home\t%s\n", d.Home)
	}
	if d.Expires != nil {
		fmt.Fprintf(w, "lease until\t%s\n", d.Expires.Local().Format(time.DateTime))
	}
}

func handoverLeasesCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "leases", Short: "List and end leases",
		Example: `  sluice handover leases list
  sluice handover leases end car7`,
	}
	list := GetCommand(app, "list", "List the leases", handoverPath+"leases", func(w io.Writer, all []plugin.LeaseInfo) {
		fmt.Fprintln(w, "DEVICE\tADDRESS\tSTATE\tUNTIL\tAT\tPOOL\tASKED BY")
		for _, l := range all {
			until := "-"
			if l.Expires != nil {
				until = l.Expires.Local().Format(time.DateTime)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Device, l.IP, l.State, until, l.At, l.Pool, l.MAC)
		}
	})
	cmd.AddCommand(list, RemoveCommand(app, "end DEVICE", "End a device's lease and remove its rules", handoverPath+"leases"))
	return cmd
}
