package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/cli"
	"github.com/sluice-net/sluice/network/packet"
)

const path = api.Prefix + "/" + name + "/"

func main() { os.Exit(cli.Main(cli.Extra{Service: newQuarantine, Commands: commands})) }

func commands(app *cli.App) []*cobra.Command {
	group := &cobra.Command{Use: name, Short: "Lead what a host sends to an inspector, and nowhere else"}
	group.AddCommand(cli.DeclaredCommands[Host, HostInfo](app, "a host in quarantine", path+"hosts")...)
	var device string
	inspector := &cobra.Command{
		Use: "inspector", Short: "Tell the controller what an interface gets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := app.Client()
			if err != nil {
				return err
			}
			return inspect(cmd.Context(), c, device)
		},
	}
	inspector.Flags().StringVar(&device, "interface", "eth0", "the interface")
	return []*cobra.Command{group, inspector}
}

// inspect is the agent: each second it tells how many packets of which flows an interface
// has got.
func inspect(ctx context.Context, c *client.Client, device string) error {
	in, err := pcapgo.NewEthernetHandle(device)
	if err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	packets, failed := make(chan packet.Headers), make(chan error, 1)
	go func() { // ends with the process
		for {
			frame, _, err := in.ZeroCopyReadPacketData()
			if err != nil {
				failed <- fmt.Errorf("%s: %w", device, err)
				return
			}
			if h, err := packet.Parse(frame); err == nil && h.IsIP() {
				packets <- h
			}
		}
	}()
	tick, flows := time.Tick(time.Second), map[string]uint64{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case h := <-packets:
			if len(flows) < 1024 {
				flows[fmt.Sprintf("%v > %v", h.Source(), h.Destination())]++
			}
		case <-tick:
			if err := c.Do(ctx, http.MethodPost, path+"sent", flows, nil); err != nil {
				return err
			}
			clear(flows)
		}
	}
}
