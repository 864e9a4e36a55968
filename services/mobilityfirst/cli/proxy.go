package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/proxy"
)

func mfProxyCommand(app *commands.App) *cobra.Command {
	var a attachment
	listen, to, connect, allow, multihoming := "", "", "", []string(nil), false
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Carry TCP connections between two names",
		Long: `Lets programs that do not know names use them. On the server's side it forwards connections
to its name to the server at --connect; on the client's side it forwards connections
to --listen to the name --to. Connections survive moves of either host.

There may be 128 connections with one name and 512 in total, with 1 MiB of each in flight
in each direction. Every name may connect unless --allow lists names; creating names
costs nothing.`,
		Example: `  sluice mf proxy --name-key web.key --connect 127.0.0.1:80
  sluice mf proxy --listen 127.0.0.1:8080 --to 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930
  curl http://127.0.0.1:8080/`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := proxy.Options{Connect: connect, Log: slog.New(slog.NewTextHandler(app.Err, nil))}
			switch {
			case (listen == "") == (connect == ""):
				return &command.UsageError{Err: errors.New("want --connect, on the server's side, or --listen and --to, on the client's")}
			case (listen == "") != (to == ""):
				return &command.UsageError{Err: errors.New("--listen and --to want each other: give both or neither")}
			case connect == "" && allow != nil:
				return &command.UsageError{Err: errors.New("--allow wants --connect: it lists the names that may connect there")}
			}
			if connect != "" {
				if _, _, err := net.SplitHostPort(connect); err != nil {
					return &command.UsageError{Err: fmt.Errorf("--connect: %w: want an address and a port, like 127.0.0.1:80", err)}
				}
			}
			for _, text := range allow {
				name, err := parseName(text)
				if err != nil {
					return err
				}
				o.Allow = append(o.Allow, name)
			}
			if to != "" {
				var err error
				if o.To, err = parseName(to); err != nil {
					return err
				}
			}
			if multihoming {
				o.Service = frame.Multihoming
			}
			ctx := cmd.Context()
			c, err := a.open(ctx)
			if err != nil {
				return err
			}
			o.Client = c
			err = ignoreInterrupt(ctx, runProxy(ctx, app, o, listen))
			return errors.Join(err, c.Close())
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&listen, "listen", "", "address and port for connections of clients")
	cmd.Flags().StringVar(&to, "to", "", "name of the other side, for --listen")
	cmd.Flags().StringVar(&connect, "connect", "", "address and port of the server for connections of other sides")
	multihomingFlag(cmd, &multihoming)
	cmd.Flags().StringSliceVar(&allow, "allow", nil, "names that may connect (default: all)")
	return cmd
}

// runProxy runs a proxy until ctx ends or the host to which its name is attached fails.
func runProxy(ctx context.Context, app *commands.App, o proxy.Options, listen string) error {
	p := proxy.New(o)
	fmt.Fprintf(app.Err, "name %v\n", o.Client.Name)
	if listen == "" {
		return p.Run(ctx)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	fmt.Fprintf(app.Err, "connections to %v go to %v\n", l.Addr(), o.To)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { defer cancel(); served <- p.Serve(ctx, l) }()
	err = p.Run(ctx)
	cancel()
	return errors.Join(err, <-served)
}
