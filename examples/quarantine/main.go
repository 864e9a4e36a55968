package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/services"
)

func main() { os.Exit(cli.Main(append(services.All(), service()))) }

// service describes the additional service to the program, which has Sluice's own services as well.
func service() commands.Service {
	return commands.Service{Definitions: []kit.Definition{{Name: name, New: newQuarantine}}, Commands: commandsOf}
}

func commandsOf(app *commands.App) []*cobra.Command {
	group := &cobra.Command{Use: name, Short: "Lead what a host sends to an inspector, and nowhere else"}
	group.AddCommand(commands.DeclaredCommands[Host, HostInfo](app, "a host in quarantine", api.Prefix+"/"+name+"/hosts")...)
	device := "eth0"
	inspector := commands.AgentDaemon(app, &cobra.Command{Use: "inspector", Short: "Tell the controller what an interface gets"}, name,
		func(ctx context.Context, a commands.Agent) error { return inspect(ctx, a, device) })
	inspector.Flags().StringVar(&device, "interface", device, "what it looks at")
	group.AddCommand(commands.Agents(app, name))
	return []*cobra.Command{group, inspector}
}

// inspect is the work of the agent: it reports which flows an interface receives, and how many
// packets of each.
func inspect(ctx context.Context, a commands.Agent, device string) error {
	in, err := pcapgo.NewEthernetHandle(device)
	if err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	server := control.NewServer[Sent](control.Options[control.Nothing]{Log: a.Log})
	packets := make(chan packet.Headers)
	go func() { // both end with the process
		for {
			frame, _, err := in.ZeroCopyReadPacketData()
			if err != nil {
				a.Log.Error("nothing is looked at any more", "interface", device, "error", err)
				return
			}
			if h, err := packet.Parse(frame); err == nil && h.IsIP() {
				packets <- h
			}
		}
	}()
	go func() {
		tick, flows := time.Tick(time.Second), map[string]uint64{}
		for {
			select {
			case h := <-packets:
				if len(flows) < 1024 {
					flows[fmt.Sprintf("%v > %v", h.Source(), h.Destination())]++
				}
			case <-tick:
				for flow, packets := range flows {
					server.Record(Sent{flow, packets})
				}
				clear(flows)
			}
		}
	}()
	return a.Serve(ctx, server)
}
