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

// Times of the public listener. A change of channel is answered when it is made.
const (
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second
	writeTime  = 20 * time.Second
	idleTime   = time.Minute
	maxHeader  = 16 << 10

	// closeAtOnce is how many viewers are ended side by side.
	closeAtOnce = 64
)

// Run runs a gateway until ctx ends; its viewers then leave.
func Run(ctx context.Context, cfg Config) error {
	inside, err := net.Listen("tcp", cfg.Control)
	if err != nil {
		return fmt.Errorf("control.listen: %w", err)
	}
	outside, err := net.Listen("tcp", cfg.Public)
	if err != nil {
		_ = inside.Close()
		return fmt.Errorf("public.listen: %w", err)
	}
	g, err := New(cfg)
	if err != nil {
		_, _ = inside.Close(), outside.Close()
		return err
	}
	return g.Serve(ctx, inside, outside)
}

// Serve serves the controller and viewers at listeners until ctx ends, and closes the gateway.
func (g *Gateway) Serve(ctx context.Context, inside, outside net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	public := g.public()
	running := tasks.New()
	running.Start(func(context.Context) { cancel(g.server.Serve(inside, g.cfg.ControlTLS)) })
	running.Start(func(context.Context) { cancel(serve(public, g.bounded(outside))) })
	g.tasks.Start(g.watchLineup)
	g.tasks.Start(g.watchSources)
	if g.hub != nil {
		g.tasks.Start(g.hub.run)
	}
	g.cfg.Log.Info("agent runs", "control", inside.Addr(), "public", g.cfg.URL, "data", g.cfg.Data, "ports", fmt.Sprintf("%d-%d", g.cfg.Ports.First, g.cfg.Ports.Last), "media", g.cfg.Media)
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

// public is the server for viewers.
func (g *Gateway) public() *http.Server {
	return &http.Server{
		Handler:           g.Handler(),
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(g.strange.Writer(g.cfg.Log, slog.LevelWarn, "public listener"), "", 0),
	}
}

// bounded is a listener with the limits of clients, and TLS if the gateway has a certificate.
func (g *Gateway) bounded(l net.Listener) net.Listener {
	l = listen.New(l, func(err error) {
		g.strange.Warn(g.cfg.Log, "cannot accept viewers' connections for now", "error", err)
	})
	l = &listener{l, g.limits}
	if c := g.cfg.PublicTLS; c != nil {
		c.NextProtos = []string{"h2", "http/1.1"}
		l = tls.NewListener(l, c)
	}
	return l
}

// close has all viewers leave and ends what runs.
func (g *Gateway) close() {
	g.tasks.Stop() // nobody joins any more
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Times.Ask)
	defer cancel()
	tasks.Each(g.all(), closeAtOnce, func(v *viewer) {
		if g.remove(v) {
			g.end(ctx, v, "the gateway ends")
		}
	})
	g.media.close()
	g.hub.close()
}
