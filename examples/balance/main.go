package main

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services"
)

func main() { os.Exit(cli.Main(append(services.All(), service()))) }

// service describes the additional service to the program, which has Sluice's own services as well.
func service() commands.Service {
	return commands.Service{Definitions: []kit.Definition{{Name: name, New: newBalance}}, Commands: commandsOf}
}

func commandsOf(app *commands.App) []*cobra.Command {
	group := &cobra.Command{Use: name, Short: "Lead connections to virtual addresses to servers"}
	group.AddCommand(commands.DeclaredCommands[Front, FrontInfo](app, "a virtual address", api.Prefix+"/"+name+"/fronts")...)
	port := uint16(80)
	beside := commands.AgentDaemon(app, &cobra.Command{Use: "server", Short: "Tell the controller whether a server answers"}, name,
		func(ctx context.Context, a commands.Agent) error {
			agent := control.NewServer[Answers](control.Options[control.Nothing]{Log: a.Log})
			ctx, cancel := context.WithCancel(ctx)
			var watching sync.WaitGroup
			watching.Go(func() { watch(ctx, agent, net.JoinHostPort(a.Data.Address.String(), strconv.Itoa(int(port)))) })
			defer watching.Wait()
			defer cancel()
			return a.Serve(ctx, agent)
		})
	beside.Flags().Uint16Var(&port, "port", port, "port of the server, at the agent's data address")
	group.AddCommand(commands.Agents(app, name))
	return []*cobra.Command{group, beside}
}

// watch is the agent's work until ctx ends: it connects to the server twice a second, and tells the
// controller when the server begins or ceases to answer.
func watch(ctx context.Context, agent *control.Server[Answers, control.Nothing], server string) {
	tick := time.NewTicker(time.Second / 2)
	defer tick.Stop()
	dialer := net.Dialer{Timeout: time.Second}
	for told, answers := false, false; ; told = true {
		before := answers
		c, err := dialer.DialContext(ctx, "tcp", server)
		if answers = err == nil; answers {
			_ = c.Close() // nothing was sent
		}
		if !told || answers != before {
			agent.Record(Answers{answers})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
