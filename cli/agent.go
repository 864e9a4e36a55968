package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos/agent"
)

// Agent is what the agent of a service runs with: the configuration of "sluice agent".
type Agent struct {
	*config.Agent
	Log *slog.Logger
	// TLS is of its control server: only a controller is answered.
	TLS *tls.Config
}

// Serve answers as an agent's control server until ctx ends.
func (a Agent) Serve(ctx context.Context, server interface {
	Serve(net.Listener, *tls.Config) error
	Close()
},
) error {
	l, err := net.Listen("tcp", a.Control.Listen.String())
	if err != nil {
		return fmt.Errorf("control.listen: %w", err)
	}
	stop := context.AfterFunc(ctx, server.Close)
	defer stop()
	return server.Serve(l, a.TLS)
}

func agentCommand(app *App) *cobra.Command {
	return AgentCommand(app, &cobra.Command{
		Use:   "agent",
		Short: "Run an agent, which carries data for a controller",
		Long: `Runs an agent until it gets SIGINT or SIGTERM; its sessions then end with a
reset. It serves only sessions that its controller has announced, and the
controller has to show a certificate: "sluice pki issue" makes both sides'.`,
		Example: `  sluice config example agent > agent.yaml
  sluice agent --config agent.yaml`,
	}, "sos", func(ctx context.Context, a Agent) error { return agent.Run(ctx, agentConfig(a)) })
}

// AgentCommand has a command run an agent of a service, which run is, until its context
// ends. It is announced to the controller if the configuration says so.
func AgentCommand(app *App, cmd *cobra.Command, service string, run func(context.Context, Agent) error) *cobra.Command {
	return daemonCommand(app, cmd, config.LoadAgent, func(ctx context.Context, r *running[*config.Agent]) error {
		r.reloads(ctx, nil)
		return runAgent(ctx, r.cfg, r.log, service, run)
	})
}

func runAgent(ctx context.Context, cfg *config.Agent, log *slog.Logger, service string, run func(context.Context, Agent) error) error {
	names := cfg.Control.TLS.Files()
	server, err := pki.Server(names, true, pki.RoleController)
	if err != nil {
		return fmt.Errorf("control.tls: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	if cfg.Announce.Server != "" {
		spec, c, err := announcement(cfg, names)
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer c.Close()
			control.Announce(ctx, c, service, spec, log.With("server", cfg.Announce.Server))
		})
		defer cancel()
	}
	return run(ctx, Agent{cfg, log, server})
}

// agentConfig translates the configuration.
func agentConfig(c Agent) agent.Config {
	a := agent.DefaultConfig()
	a.Log, a.Version, a.TLS = c.Log, version.Get().Version, c.TLS
	a.Listen = c.Control.Listen.String()
	a.Cert, a.Key, a.CA, a.Roles = c.Control.TLS.Cert, c.Control.TLS.Key, c.Control.TLS.CA, c.Control.TLS.Roles
	a.DataAddr, a.SecondAddr = c.First(), c.Data.Second
	a.DataPorts = nil
	for p := int(c.Data.Ports.First); p <= int(c.Data.Ports.Last); p++ { // without a range: 0, the kernel chooses
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

// announcement is what an agent tells the controller of itself, and how.
func announcement(c *config.Agent, names pki.Files) (spec control.AgentSpec, to *client.Client, err error) {
	url := cmp.Or(c.Announce.URL, "https://"+c.Control.Listen.String())
	spec = control.AgentSpec{Name: c.Name, URL: url, Addrs: []string{c.First().String()}, MaxSessions: c.Sessions.Max}
	if c.Data.Second.IsValid() {
		spec.Addrs = append(spec.Addrs, c.Data.Second.String())
	}
	if spec.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return spec, nil, fmt.Errorf("name: %w", err)
		}
		spec.Name = strings.ToLower(host)
	}
	options := client.Options{Server: c.Announce.Server}
	if c.Announce.TokenFile != "" {
		b, err := os.ReadFile(c.Announce.TokenFile)
		if err != nil {
			return spec, nil, fmt.Errorf("announce.token_file: %w", err)
		}
		options.Token = strings.TrimSpace(string(b))
	}
	if options.TLS, err = pki.Client(names, pki.RoleController); err != nil {
		return spec, nil, fmt.Errorf("control.tls: %w", err)
	}
	if to, err = client.New(options); err != nil {
		return spec, nil, fmt.Errorf("announce.server: %w", err)
	}
	return spec, to, nil
}
