package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos"
	"github.com/sluice-net/sluice/services/sos/agent"
)

func agentCommand(app *commands.App) *cobra.Command {
	return commands.AgentDaemon(app, &cobra.Command{
		Use:   "agent",
		Short: "Run an agent, which carries data for a controller",
		Long: `Runs an agent until it gets SIGINT or SIGTERM; its sessions then end with a
reset. It serves only sessions that its controller has announced, and the
controller has to show a certificate: "sluice pki issue" makes both sides'.`,
		Example: `  sluice config example agent > agent.yaml
  sluice agent --config agent.yaml`,
	}, sos.Name, func(ctx context.Context, a commands.Agent) error { return agent.Run(ctx, agentConfig(a)) })
}

// agentConfig converts the configuration file to the agent's configuration.
func agentConfig(c commands.Agent) agent.Config {
	a := agent.DefaultConfig()
	a.Log, a.Version, a.TLS = c.Log, version.Get().Version, c.TLS
	a.Listen = c.Control.Listen.String()
	a.Cert, a.Key, a.CA, a.Roles = c.Control.TLS.Cert, c.Control.TLS.Key, c.Control.TLS.CA, c.Control.TLS.Roles
	a.DataAddr, a.SecondAddr = c.First(), c.Data.Second
	a.DataPorts = nil
	for p := int(c.Data.Ports.First); p <= int(c.Data.Ports.Last); p++ { // without a range, the port is 0, and the kernel chooses one
		a.DataPorts = append(a.DataPorts, uint16(p))
	}
	a.SessionPorts = cmp.Or(control.PortRange(c.Sessions.Ports), a.SessionPorts)
	a.Memory = c.Data.Memory
	a.WarmPerPeer, a.WarmIdle = c.Data.Warm, c.Data.WarmFor
	a.MaxSessions, a.IdleTimeout, a.DialTimeout = c.Sessions.Max, c.Sessions.Idle, c.Sessions.DialTimeout
	a.Connections, a.AutoConnections = c.Transfer.Connections, c.Transfer.Auto
	a.ChunkBytes, a.Queue, a.BufferBytes = int(c.Transfer.Chunk), c.Transfer.Queue, int(c.Transfer.Buffer)
	a.CongestionControl = c.Transfer.Congestion
	return a
}
