package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/internal/tasks"
)

// Timeouts of the public listener, and the limit of a request's header in bytes. writeTimeout leaves
// time for a change of channel, which is answered when it is complete.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 25 * time.Second
	idleTimeout   = time.Minute
	maxHeader     = 16 << 10

	// maxParallelCloses bounds how many viewers are ended at the same time.
	maxParallelCloses = 64
)

// Run runs a gateway until ctx ends. Its viewers then leave.
func Run(ctx context.Context, cfg Config) error {
	controlListener, err := net.Listen("tcp", cfg.Control)
	if err != nil {
		return fmt.Errorf("control.listen: %w", err)
	}
	publicListener, err := net.Listen("tcp", cfg.Public)
	if err != nil {
		_ = controlListener.Close()
		return fmt.Errorf("public.listen: %w", err)
	}
	g, err := New(cfg)
	if err != nil {
		_, _ = controlListener.Close(), publicListener.Close()
		return err
	}
	return g.Serve(ctx, controlListener, publicListener)
}

// Serve serves the controller and the viewers at the given listeners until ctx ends, and then closes
// the gateway.
func (g *Gateway) Serve(ctx context.Context, controlListener, publicListener net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	public := g.publicServer()
	running := tasks.New()
	running.Start(func(context.Context) { cancel(g.server.Serve(controlListener, g.cfg.ControlTLS)) })
	running.Start(func(context.Context) { cancel(serve(public, g.limitListener(publicListener))) })
	g.tasks.Start(g.pollLineup)
	g.tasks.Start(g.checkSources)
	if g.hub != nil {
		g.tasks.Start(g.hub.run)
	}
	g.cfg.Log.Info("agent runs", "control", controlListener.Addr(), "public", g.cfg.URL, "data", g.cfg.Data, "ports", fmt.Sprintf("%d-%d", g.cfg.Ports.First, g.cfg.Ports.Last), "media", g.cfg.Media)
	<-ctx.Done()
	_ = public.Close()
	g.close()
	g.server.Close()
	running.Stop()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func serve(s *http.Server, l net.Listener) error {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("public listener at %v: %w", l.Addr(), err)
	}
	return context.Canceled
}

// publicServer returns the server for viewers.
func (g *Gateway) publicServer() *http.Server {
	return &http.Server{
		Handler:           g.Handler(),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(g.warnLimiter.Writer(g.cfg.Log, slog.LevelWarn, "public listener"), "", 0),
	}
}

// limitListener returns a listener that limits the connections of each client's address, and that uses
// TLS if the gateway has a certificate.
func (g *Gateway) limitListener(l net.Listener) net.Listener {
	l = listen.New(l, func(err error) {
		g.warnLimiter.Warn(g.cfg.Log, "cannot accept viewers' connections for now", "error", err)
	})
	l = &limitedListener{l, g.limits}
	if c := g.cfg.PublicTLS; c != nil {
		c.NextProtos = []string{"h2", "http/1.1"}
		l = tls.NewListener(l, c)
	}
	return l
}

// close ends all viewers and all tasks of the gateway, and closes its media ports.
func (g *Gateway) close() {
	g.tasks.Stop() // no viewer joins any more
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Times.Ask)
	defer cancel()
	tasks.Each(g.all(), maxParallelCloses, func(v *viewer) {
		if g.remove(v) {
			g.finish(ctx, v, "the gateway ends")
		}
	})
	g.transport.close()
	g.hub.close()
}
