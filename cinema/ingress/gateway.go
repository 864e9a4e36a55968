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

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/service/control"
)

// beat is how often channels are looked at.
const beat = 250 * time.Millisecond

// Gateway is a running ingress gateway.
type Gateway struct {
	cfg      Config
	log      *slog.Logger
	totals   totals
	warnings []string
	tasks    *tasks.Group
	bursts   chan struct{} // places of bursts under way
	control  net.Listener
	server   *control.Server[gatewayapi.ChannelEvent, gatewayapi.ChannelState]
	public   *public

	thumbnails *gatewayapi.Thumbnails

	changes sync.Mutex // one change of the channels at a time

	mu       sync.Mutex
	channels map[string]*channel
}

// Run runs a gateway until ctx ends, and then closes everything that it has opened.
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

// New starts a gateway; Close ends it.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("ingress gateway: %w", err)
	}
	cfg.FFmpeg = cmp.Or(cfg.FFmpeg, "ffmpeg")
	if cfg.open == nil {
		if _, err := linkOf(cfg.Data); err != nil {
			return nil, err
		}
		cfg.open = (&network{from: cfg.Data, log: cfg.Log, have: map[netip.Addr]int{}}).open
	}
	g := &Gateway{
		cfg: cfg, log: cfg.Log, tasks: tasks.New(), bursts: make(chan struct{}, allBursts), channels: map[string]*channel{},
	}
	g.thumbnails = gatewayapi.NewThumbnails(g.thumbnail)
	g.warnings = missing(cfg.FFmpeg)
	g.server = g.newServer()
	if err := g.start(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// start opens what the gateway needs and starts what it runs.
func (g *Gateway) start() error {
	var err error
	if g.public, err = openPublic(g); err != nil {
		return err
	}
	if g.control, err = net.Listen("tcp", g.cfg.Listen); err != nil {
		return fmt.Errorf("control address: %w", err)
	}
	g.tasks.Start(g.public.run)
	g.tasks.Start(g.beat)
	g.tasks.Start(func(context.Context) {
		if err := g.server.Serve(g.control, g.cfg.TLS); err != nil {
			g.log.Error("no controller is answered any more", "error", err)
		}
	})
	return nil
}

// Close ends every channel, with its child processes and producers, and waits until all has
// stopped.
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

// ControlAddr is the address of the control server.
func (g *Gateway) ControlAddr() netip.AddrPort { return g.control.Addr().(*net.TCPAddr).AddrPort() }

// PublicURL is where producers publish.
func (g *Gateway) PublicURL() string { return g.public.url }

// beat looks at each channel again and again.
func (g *Gateway) beat(ctx context.Context) {
	t := time.NewTicker(beat)
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

// channel returns one by its name, or nil.
func (g *Gateway) channel(name string) *channel {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.channels[name]
}

// list returns the channels in the order of their numbers.
func (g *Gateway) list() []*channel {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Values(g.channels), func(a, b *channel) int { return int(a.number) - int(b.number) })
}

// have makes the gateway have a channel like that. One that is so already is left alone.
func (g *Gateway) have(spec gatewayapi.Channel, s source) error {
	g.changes.Lock()
	defer g.changes.Unlock()
	old := g.channel(spec.Name)
	if old != nil && old.adjust(spec) {
		return nil
	}
	if err := g.room(spec, old); err != nil {
		return err
	}
	if old != nil {
		g.remove(old)
	}
	out, err := g.cfg.open(spec.To, gatewayapi.SourcePort(spec.Number))
	if err != nil {
		return err
	}
	c := newChannel(spec, out, g.log, g.server.Record, &g.totals)
	g.mu.Lock()
	g.channels[spec.Name] = c
	g.mu.Unlock()
	if spec.Source != "" {
		c.play(g.cfg.FFmpeg, s)
	}
	return nil
}

// room says whether the gateway can have a channel in the place of an old one, if there is one.
func (g *Gateway) room(spec gatewayapi.Channel, old *channel) error {
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

// drop makes the gateway have a channel no longer.
func (g *Gateway) drop(name string) {
	g.changes.Lock()
	defer g.changes.Unlock()
	if c := g.channel(name); c != nil {
		g.remove(c)
	}
}

// remove ends a channel. The caller holds changes.
func (g *Gateway) remove(c *channel) {
	g.mu.Lock()
	delete(g.channels, c.name)
	g.mu.Unlock()
	c.close()
}

// missing says what the gateway's programs lack.
func missing(ffmpeg string) []string {
	if _, err := exec.LookPath(ffmpeg); err != nil {
		return []string{fmt.Sprintf("channels with a source do not come: install ffmpeg, or say where it is (%v)", err)}
	}
	return nil
}
