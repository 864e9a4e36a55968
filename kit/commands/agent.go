package commands

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
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/pki"
)

// Agent holds what an agent process of a service needs: the configuration of "sluice agent", a
// logger and the TLS configuration.
type Agent struct {
	*config.Agent
	Log *slog.Logger
	// TLS is the configuration of the agent's control server, which answers only a controller.
	TLS *tls.Config
}

// Serve runs an agent's control server until ctx ends.
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

// AgentDaemon makes a command run an agent of a service: it calls run, whose context ends when the
// command is told to end. The agent is announced to the controller if the configuration says so.
func AgentDaemon(app *App, cmd *cobra.Command, service string, run func(context.Context, Agent) error) *cobra.Command {
	return AgentDaemonOf(app, cmd, service, config.DefaultAgent, func(ctx context.Context, _ *config.Agent, a Agent) error { return run(ctx, a) })
}

// AgentSettings is the configuration of an agent of a service.
type AgentSettings interface {
	Settings
	// Agent returns the settings that all agents have: who they are, and how they communicate with
	// their controller.
	Agent() *config.Agent
}

// AgentDaemonOf makes a command run an agent, as AgentDaemon does, with a configuration of the
// service's own type T.
func AgentDaemonOf[T AgentSettings](app *App, cmd *cobra.Command, service string, defaults func() T, run func(context.Context, T, Agent) error) *cobra.Command {
	return Daemon(app, cmd, defaults, func(ctx context.Context, r *Running[T]) error {
		cfg := r.Config // Reloads replaces r.Config
		r.Reloads(ctx, nil)
		return runAgent(ctx, cfg.Agent(), r.Log, service, func(ctx context.Context, a Agent) error { return run(ctx, cfg, a) })
	})
}

// runAgent calls run with ctx. While run runs, the agent is announced to the controller if the
// configuration says so.
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
		spec, c, err := Announcement(cfg, names)
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

// Announcement returns the specification that an agent announces to the controller, and the client
// for that controller.
func Announcement(c *config.Agent, names pki.Files) (spec control.AgentSpec, to *client.Client, err error) {
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
