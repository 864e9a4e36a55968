package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/kit/commands"
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
	flags.StringVar(&c.addr, "control-listen", "", "address and port of the control server for controllers, like 192.0.2.7:8440")
	flags.StringVar(&c.files.Cert, "control-cert", "", "file of the control server's certificate; see \"sluice pki issue node\"")
	flags.StringVar(&c.files.Key, "control-key", "", "file of the certificate's key")
	flags.StringVar(&c.files.CA, "control-ca", "", "file of the CA of accepted controllers")
}

// open opens the listener if there is an address.
func (c *controlServer) open() error {
	complete := c.files.Cert != "" && c.files.Key != "" && c.files.CA != ""
	switch at, err := netip.ParseAddrPort(c.addr); {
	case c.addr == "" && (c.files.Cert != "" || c.files.Key != "" || c.files.CA != ""):
		return &command.UsageError{Err: errors.New("--control-listen is missing: the address of the control server")}
	case c.addr == "":
		return nil
	case err != nil || !at.IsValid():
		return &command.UsageError{Err: fmt.Errorf("--control-listen %s: want an IP address and a port, like 192.0.2.7:8440", c.addr)}
	case !complete:
		return &command.UsageError{Err: errors.New("--control-listen wants --control-cert, --control-key and --control-ca: only controllers may connect")}
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
			o.Log.Error("the control server has failed", "error", err)
		}
	})
	o.Log.Info("control server runs", "at", c.listen.Addr())
	return func() { server.Close(); serving.Wait() }, nil
}

func mfNodesCommand(app *commands.App) *cobra.Command {
	d := commands.Declared[mobilityfirst.NodeSpec, mobilityfirst.NodeInfo]{
		App: app, Singular: "a node", Path: mfPath + "nodes",
		Columns: "name kind guid state standing load places url origin error",
	}
	cmd := commands.Group("nodes", "Declare storage nodes, compute nodes and caches, and show their load", `  sluice mf nodes add depot-1 --url https://192.0.2.7:8440
  sluice mf nodes list
  sluice mf nodes drain depot-1
  sluice mf nodes remove depot-1`,
		d.List(), d.Show(), d.Add(), d.Set(), d.Remove(),
		commands.Drain(d, "Give a node no new paths if there is another node, or end that", "give the node new paths again"))
	cmd.Long = `A node that runs with --control-listen ("sluice mf storage", "compute" and "cache") and is
declared reports its load to the controller. If several hosts have its name, requests for
the name go first to nodes that are fit: not full, not draining, and not silent.`
	return cmd
}

func mfFunctionsCommand(app *commands.App) *cobra.Command {
	return commands.Get(app, "functions", "List the functions of declared compute nodes, and their load", mfPath+"functions",
		commands.Table[mobilityfirst.FunctionInfo]("guid node function builtin standing called failed refused running queued cpu_time=CPU"))
}

func mfCustodyCommand(app *commands.App) *cobra.Command {
	cmd := commands.Get(app, "custody", "List the chunks in declared storage nodes, by destination and sender", mfPath+"custody", func(w io.Writer, l mobilityfirst.CustodyList) {
		commands.Table[mobilityfirst.CustodyInfo]("")(w, l.Chunks)
		for _, missing := range l.Missing {
			fmt.Fprintf(app.Err, "sluice: not in the list: %s\n", missing)
		}
	})
	cmd.Long = `Queries each storage node that is declared and up. Without --after these are the first rows;
--after continues behind a row, given as NODE/DESTINATION/SOURCE.`
	cmd.Example = `  sluice mf custody
  sluice mf custody --for 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930`
	flags := cmd.Flags()
	flags.String("for", "", "only chunks for this name")
	flags.String("after", "", "only rows after this one, NODE/DESTINATION/SOURCE")
	flags.String("limit", "", "maximum number of rows, 1 to 1000 (default 100)")
	return cmd
}
