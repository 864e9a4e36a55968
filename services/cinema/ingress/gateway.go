package ingress

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// tickInterval is the interval at which channels are checked for silence and old key frames.
const tickInterval = 250 * time.Millisecond

// Gateway is a running ingress gateway.
type Gateway struct {
	cfg      Config
	log      *slog.Logger
	totals   totals
	warnings []string
	tasks    *tasks.Group
	bursts   chan struct{} // holds one element for each burst in progress
	control  net.Listener
	server   *control.Server[gatewayapi.ChannelEvent, gatewayapi.ChannelState]
	public   *public

	thumbnails *gatewayapi.Thumbnails

	changes sync.Mutex // serializes changes of the channels

	drift *drift.Counts

	mu       sync.Mutex
	channels map[string]*channel
}

// Run runs a gateway until ctx ends, and then closes it.
func Run(ctx context.Context, cfg Config) error {
	g, err := New(cfg)
	if err != nil {
		return err
	}
	defer g.Close()
	g.log.Info("ingress gateway runs", "control", g.ControlAddr(), "data", cfg.Data, "public", g.public.url)
	<-ctx.Done()
	return nil
}

// New starts a gateway. The caller ends it with Close.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("ingress gateway: %w", err)
	}
	cfg.FFmpeg = cmp.Or(cfg.FFmpeg, "ffmpeg")
	var things []drift.Thing
	if cfg.openOutput == nil {
		if _, err := linkOf(cfg.Data); err != nil {
			return nil, err
		}
		o := newOutputs(cfg.Data, cfg.Log)
		cfg.openOutput, things = o.open, append(things, o.thing())
	}
	g := &Gateway{
		cfg: cfg, log: cfg.Log, tasks: tasks.New(), bursts: make(chan struct{}, maxBursts), channels: map[string]*channel{},
		drift: drift.NewCounts(cfg.Log),
	}
	g.totals.refusals.Burst = 20
	g.thumbnails = gatewayapi.NewThumbnails(g.thumbnail)
	g.warnings = programWarnings(cfg.FFmpeg)
	g.server = g.newServer()
	if err := g.start(things); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// start opens the gateway's listeners and starts its goroutines, which also keep things as they were
// declared.
func (g *Gateway) start(things []drift.Thing) error {
	keeper, err := drift.Open(g.drift, things...)
	if err != nil {
		return err
	}
	g.tasks.Start(func(ctx context.Context) {
		if err := keeper.Run(ctx); err != nil {
			g.log.Error("what other programs change in the kernel is no longer restored", "error", err)
		}
	})
	if g.public, err = openPublic(g); err != nil {
		return err
	}
	if g.control, err = net.Listen("tcp", g.cfg.Listen); err != nil {
		return fmt.Errorf("control address: %w", err)
	}
	g.tasks.Start(g.public.run)
	g.tasks.Start(g.runTicks)
	g.tasks.Start(func(context.Context) {
		if err := g.server.Serve(g.control, g.cfg.TLS); err != nil {
			g.log.Error("no controller is answered any more", "error", err)
		}
	})
	return nil
}

// Close ends all channels with their child processes and producers, and waits until everything
// has stopped.
func (g *Gateway) Close() {
	g.server.Close()
	if g.control != nil {
		_ = g.control.Close()
	}
	if g.public != nil {
		g.public.stop()
	}
	g.tasks.Stop()
	g.changes.Lock()
	defer g.changes.Unlock()
	for _, c := range g.list() {
		g.remove(c)
	}
	if g.public != nil {
		g.public.close()
	}
}

// ControlAddr returns the address of the control server.
func (g *Gateway) ControlAddr() netip.AddrPort { return g.control.Addr().(*net.TCPAddr).AddrPort() }

// PublicURL returns the URL at which producers publish.
func (g *Gateway) PublicURL() string { return g.public.url }

// runTicks checks each channel periodically until ctx ends.
func (g *Gateway) runTicks(ctx context.Context) {
	t := time.NewTicker(tickInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			for _, c := range g.list() {
				c.tick(now)
			}
		}
	}
}

// channel returns the channel with a name, or nil.
func (g *Gateway) channel(name string) *channel {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.channels[name]
}

// list returns the channels, ordered by number.
func (g *Gateway) list() []*channel {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Values(g.channels), func(a, b *channel) int { return int(a.number) - int(b.number) })
}

// setChannel adds or changes a channel. It does nothing if the channel exists with the same
// specification.
func (g *Gateway) setChannel(spec gatewayapi.Channel, s source) error {
	g.changes.Lock()
	defer g.changes.Unlock()
	old := g.channel(spec.Name)
	if old != nil && old.update(spec) {
		return nil
	}
	if err := g.checkRoom(spec, old); err != nil {
		return err
	}
	if old != nil {
		g.remove(old)
	}
	out, err := g.cfg.openOutput(spec.To, gatewayapi.SourcePort(spec.Number))
	if err != nil {
		return err
	}
	c := newChannel(spec, out, g.log, g.server.Record, &g.totals)
	g.mu.Lock()
	g.channels[spec.Name] = c
	g.mu.Unlock()
	if spec.Source != "" {
		c.startSource(g.cfg.FFmpeg, s)
	}
	return nil
}

// checkRoom returns an error if the gateway cannot have a channel. old is the channel that it
// replaces, or nil.
func (g *Gateway) checkRoom(spec gatewayapi.Channel, old *channel) error {
	all := g.list()
	for _, c := range all {
		if c.number == spec.Number && c != old {
			return &control.Problem{
				Title: "the number is taken", Code: control.CodeDuplicate, Field: "number", Detail: fmt.Sprintf("%d is that of %s", c.number, c.name),
			}
		}
	}
	switch {
	case old != nil:
		return nil
	case g.server.Draining() || g.tasks.Context().Err() != nil:
		return &control.Problem{Title: "the gateway is draining", Code: control.CodeDraining}
	case len(all) >= g.cfg.MaxChannels:
		return &control.Problem{Title: "the gateway is full", Code: control.CodeFull, Detail: fmt.Sprintf("%d channels", g.cfg.MaxChannels)}
	}
	return nil
}

// deleteChannel removes a channel if the gateway has it.
func (g *Gateway) deleteChannel(name string) {
	g.changes.Lock()
	defer g.changes.Unlock()
	if c := g.channel(name); c != nil {
		g.remove(c)
	}
}

// remove closes a channel. g.changes is held.
func (g *Gateway) remove(c *channel) {
	g.mu.Lock()
	delete(g.channels, c.name)
	g.mu.Unlock()
	c.close()
}

// programWarnings returns warnings about missing programs.
func programWarnings(ffmpeg string) []string {
	if _, err := exec.LookPath(ffmpeg); err != nil {
		return []string{fmt.Sprintf("channels with a source do not come: install ffmpeg, or say where it is (%v)", err)}
	}
	return nil
}
