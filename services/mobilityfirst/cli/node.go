package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/sluice-net/sluice/kit/commands"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/mobilityfirst"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
)

// controlServer is the control server of a node, if it has an address. A controller monitors the
// node through it.
type controlServer struct {
	addr   string // empty if there is no control server
	files  pki.Files
	listen net.Listener
}

func (c *controlServer) flags(flags *pflag.FlagSet) {
	flags.StringVar(&c.addr, "control-listen", "", "address and port where a controller asks this node, like 192.0.2.7:8440")
	flags.StringVar(&c.files.Cert, "control-cert", "", "file of its certificate there; see \"sluice pki issue node\"")
	flags.StringVar(&c.files.Key, "control-key", "", "file of the certificate's key")
	flags.StringVar(&c.files.CA, "control-ca", "", "file of the CA whose controllers are answered")
}

// open opens the listener if there is an address.
func (c *controlServer) open() error {
	complete := c.files.Cert != "" && c.files.Key != "" && c.files.CA != ""
	switch at, err := netip.ParseAddrPort(c.addr); {
	case c.addr == "" && (c.files.Cert != "" || c.files.Key != "" || c.files.CA != ""):
		return &command.UsageError{Err: errors.New("--control-listen is missing: where a controller asks this node")}
	case c.addr == "":
		return nil
	case err != nil || !at.IsValid():
		return &command.UsageError{Err: fmt.Errorf("--control-listen %s: want an IP address and a port, like 192.0.2.7:8440", c.addr)}
	case !complete:
		return &command.UsageError{Err: errors.New("--control-listen wants --control-cert, --control-key and --control-ca: none but a controller is answered")}
	}
	var err error
	if c.listen, err = net.Listen("tcp", c.addr); err != nil {
		return fmt.Errorf("--control-listen: %w", err)
	}
	return nil
}

// serve serves controllers until stop is called, which waits for the end.
func (c *controlServer) serve(o nodeapi.Options) (stop func(), err error) {
	if c.listen == nil {
		return func() {}, nil
	}
	config, err := pki.Server(c.files, true, pki.RoleController)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--control-cert: %w", err), c.listen.Close())
	}
	o.Version = version.Get().Version
	server := nodeapi.NewServer(o)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(c.listen, config); err != nil {
			o.Log.Error("no controller is answered any more", "error", err)
		}
	})
	o.Log.Info("a controller may ask", "at", c.listen.Addr())
	return func() { server.Close(); serving.Wait() }, nil
}

func mfNodesCommand(app *commands.App) *cobra.Command {
	d := commands.Declared[mobilityfirst.NodeSpec, mobilityfirst.NodeInfo]{
		App: app, Noun: "a node", Path: mfPath + "nodes",
		Columns: "name kind guid state standing load places url origin error",
	}
	cmd := commands.Group("nodes", "Declare storage nodes, compute nodes and caches, and see how busy they are", `  sluice mf nodes add depot-1 --url https://192.0.2.7:8440
  sluice mf nodes list
  sluice mf nodes drain depot-1
  sluice mf nodes remove depot-1`,
		d.List(), d.Show(), d.Add(), d.Set(), d.Remove(),
		commands.Drain(d, "Give a node no new paths where there is another, or give it some again", "give it paths again"))
	cmd.Long = `A node that runs with --control-listen ("sluice mf storage", "compute" and "cache") and is
declared tells the controller how busy it is. Where several hosts have its name, who asks for
that is led to those that are fit first: not full, not draining, and not silent.`
	return cmd
}

func mfFunctionsCommand(app *commands.App) *cobra.Command {
	return commands.Get(app, "functions", "List the functions that declared compute nodes run, and how busy they are", mfPath+"functions",
		commands.Table[mobilityfirst.FunctionInfo]("guid node function builtin standing called failed refused running queued cpu_time=CPU"))
}

func mfCustodyCommand(app *commands.App) *cobra.Command {
	cmd := commands.Get(app, "custody", "List what declared storage nodes keep, by destination and sender", mfPath+"custody", func(w io.Writer, l mobilityfirst.CustodyList) {
		commands.Table[mobilityfirst.CustodyInfo]("")(w, l.Chunks)
		for _, missing := range l.Missing {
			fmt.Fprintf(app.Err, "sluice: not in the list: %s\n", missing)
		}
	})
	cmd.Long = `Asks each storage node that is declared and up, now. Without --after these are the first rows;
those that follow begin after the last, as NODE/DESTINATION/SOURCE.`
	cmd.Example = `  sluice mf custody
  sluice mf custody --for 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930`
	flags := cmd.Flags()
	flags.String("for", "", "only chunks for this name")
	flags.String("after", "", "only rows behind this one, NODE/DESTINATION/SOURCE")
	flags.String("limit", "", "how many rows at most, 1 to 1000; 100 if it is not given")
	return cmd
}
