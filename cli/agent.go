package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agent"
)

func agentCommand(app *App) *cobra.Command {
	return daemonCommand(app, &cobra.Command{
		Use:   "agent",
		Short: "Run an agent, which carries data for a controller",
		Long: `Runs an agent until it gets SIGINT or SIGTERM; its sessions then end with a
reset. It serves only sessions that its controller has announced, and the
controller has to show a certificate: "sluice pki issue" makes both sides'.`,
		Example: `  sluice config example agent > agent.yaml
  sluice agent --config agent.yaml`,
	}, config.LoadAgent, func(ctx context.Context, r *running[*config.Agent]) error {
		r.reloads(ctx, nil)
		return runAgent(ctx, r.cfg, r.log)
	})
}

func runAgent(ctx context.Context, cfg *config.Agent, log *slog.Logger) error {
	ac, err := agentConfig(cfg)
	if err != nil {
		return err
	}
	ac.Log, ac.Version = log, version.Get().Version
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	if cfg.Announce.Server != "" {
		spec, c, err := announcement(cfg, ac)
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer c.Close()
			control.Announce(ctx, c, "sos", spec, log.With("server", cfg.Announce.Server))
		})
		defer cancel()
	}
	return agent.Run(ctx, ac)
}

// agentConfig translates the configuration.
func agentConfig(c *config.Agent) (agent.Config, error) {
	a := agent.DefaultConfig()
	a.Listen = c.Control.Listen.String()
	a.Cert, a.Key, a.CA = c.Control.TLS.Cert, c.Control.TLS.Key, c.Control.TLS.CA
	a.DataAddr, a.SecondAddr = c.Data.Address, c.Data.Second
	if !a.DataAddr.IsValid() {
		a.DataAddr = c.Control.Listen.Addr()
	}
	a.DataPorts = []uint16{0}
	if r := c.Data.Ports; r != (config.PortRange{}) {
		a.DataPorts = nil
		for p := int(r.First); p <= int(r.Last); p++ {
			a.DataPorts = append(a.DataPorts, uint16(p))
		}
	}
	if r := c.Sessions.Ports; r != (config.PortRange{}) {
		a.SessionPorts = control.PortRange{First: r.First, Last: r.Last}
	}
	a.WarmPerPeer, a.WarmIdle = c.Data.Warm, c.Data.WarmFor
	a.MaxSessions, a.IdleTimeout, a.DialTimeout = c.Sessions.Max, c.Sessions.Idle, c.Sessions.DialTimeout
	a.Connections, a.AutoConnections = c.Transfer.Connections, c.Transfer.Auto
	a.ChunkBytes, a.Queue, a.BufferBytes = int(c.Transfer.Chunk), c.Transfer.Queue, int(c.Transfer.Buffer)
	a.CongestionControl = c.Transfer.Congestion
	var err error
	a.Roles = c.Control.TLS.Roles
	a.TLS, err = pki.Server(pki.Files{Cert: a.Cert, Key: a.Key, CA: a.CA, Roles: a.Roles}, true, pki.RoleController)
	if err != nil {
		return agent.Config{}, fmt.Errorf("control.tls: %w", err)
	}
	return a, nil
}

// announcement is what an agent tells the controller of itself, and how.
func announcement(c *config.Agent, ac agent.Config) (spec control.AgentSpec, to *client.Client, err error) {
	spec = control.AgentSpec{Name: c.Name, URL: c.Announce.URL, Addrs: []string{ac.DataAddr.String()}, MaxSessions: ac.MaxSessions}
	if ac.SecondAddr.IsValid() {
		spec.Addrs = append(spec.Addrs, ac.SecondAddr.String())
	}
	if spec.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return spec, nil, fmt.Errorf("name: %w", err)
		}
		spec.Name = strings.ToLower(host)
	}
	if spec.URL == "" {
		spec.URL = "https://" + ac.Listen
	}
	names := pki.Files{Cert: ac.Cert, Key: ac.Key, CA: ac.CA, Roles: ac.Roles}
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
