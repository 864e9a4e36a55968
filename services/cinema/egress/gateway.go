package egress

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// Gateway is an egress gateway. Create it with New. It is safe for concurrent use.
type Gateway struct {
	cfg         Config
	server      *control.Server[gatewayapi.ViewerEvent, gatewayapi.Viewer]
	transport   *transport
	limits      *clientLimits
	metrics     *metrics
	tasks       *tasks.Group
	lineup      atomic.Pointer[gatewayapi.Lineup]
	warnLimiter lograte.Limit // limits log lines that viewers can cause
	repairs     chan struct{} // holds one element for each viewer that requests a repair
	hub         *hub          // nil if each viewer has its own port

	thumbnails *gatewayapi.Thumbnails

	asking         chan struct{} // holds one element while the lineup is requested
	lineupAt       time.Time     // when the lineup was requested; guarded by asking
	controllerAway atomic.Bool   // the controller did not answer pollLineup

	mu      sync.Mutex
	viewers map[string]*viewer // by the secret of their session
	joining int                // viewers that have not joined completely
	ports   map[uint16]bool    // ports in use
	last    uint16             // port that was assigned last
}

// New returns a gateway that listens for viewers' media, but does not serve anybody yet.
func New(cfg Config) (*Gateway, error) {
	cfg.Times = cmp.Or(cfg.Times, DefaultTimes())
	g := &Gateway{
		cfg: cfg, limits: newClientLimits(&cfg), tasks: tasks.New(), repairs: make(chan struct{}, maxRepairs), asking: make(chan struct{}, 1),
		viewers: map[string]*viewer{}, ports: map[uint16]bool{}, last: cfg.Ports.Last,
	}
	g.metrics, g.thumbnails = newMetrics(g.count), gatewayapi.NewThumbnails(cfg.Controller.Thumbnail)
	var err error
	if cfg.Shared {
		port, socket, err := g.listen()
		if err != nil {
			return nil, fmt.Errorf("a port for channels: %w", err)
		}
		g.hub = newHub(port, socket, g.metrics)
	}
	if g.transport, err = newTransport(cfg); err != nil {
		g.hub.close()
		return nil, err
	}
	g.server = control.NewServer[gatewayapi.ViewerEvent](control.Options[gatewayapi.Viewer]{
		Log: cfg.Log, MaxSessions: cfg.MaxViewers, Metrics: g.metrics.registry,
		Status: g.status, Sessions: g.count, Live: g.live, Totals: g.metrics.totals,
	})
	return g, nil
}

func (g *Gateway) status() control.Status {
	return control.Status{Version: g.cfg.Version, Addrs: []netip.Addr{g.cfg.Data}, SessionPorts: g.cfg.Ports, PublicURL: g.cfg.URL}
}

// count returns the number of viewers.
func (g *Gateway) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.viewers) + g.joining
}

// live returns the report about all viewers that the controller gets each second.
func (g *Gateway) live() []gatewayapi.Viewer {
	all := g.all()
	out := make([]gatewayapi.Viewer, 0, len(all))
	for _, v := range all {
		out = append(out, v.report())
	}
	slices.SortFunc(out, func(a, b gatewayapi.Viewer) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (g *Gateway) all() []*viewer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.viewers))
}

// reserve counts a viewer that is about to join, and reports whether there is room for it.
func (g *Gateway) reserve() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.server.Draining() || g.tasks.Context().Err() != nil || len(g.viewers)+g.joining >= g.cfg.MaxViewers {
		return false
	}
	g.joining++
	return true
}

// finishJoin adds a viewer for which reserve was called, or only ends the reservation if v is
// nil.
func (g *Gateway) finishJoin(v *viewer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joining--
	if v != nil {
		g.viewers[v.secret] = v
	}
}

// otherGateway returns the URL of the gateway in the lineup with the most room, or "".
func (g *Gateway) otherGateway() string {
	best := gatewayapi.Gateway{}
	if l := g.lineup.Load(); l != nil {
		for _, other := range l.Gateways {
			if other.Name != g.cfg.Name && other.URL != "" && other.Room > best.Room {
				best = other
			}
		}
	}
	return best.URL
}

func (g *Gateway) viewer(secret string) (*viewer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := g.viewers[secret]; v != nil {
		return v, nil
	}
	return nil, newRefusal(http.StatusNotFound, "session", "there is no such session; it may be over")
}

// endViewer ends a viewer, at most once. It does not wait for the end.
func (g *Gateway) endViewer(v *viewer, why string) {
	g.tasks.Start(func(context.Context) {
		if g.remove(v) {
			g.finish(context.Background(), v, why)
		}
	})
}

// remove removes a viewer, and reports whether it was there.
func (g *Gateway) remove(v *viewer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	there := g.viewers[v.secret] == v
	delete(g.viewers, v.secret)
	return there
}

// finish ends a viewer that has been removed, and tells the controller.
func (g *Gateway) finish(ctx context.Context, v *viewer, why string) {
	v.close()
	g.limits.leave(v.address)
	if _, err := g.requestChannels(ctx, v, nil, "", false); err != nil {
		g.warnLimiter.Warn(g.cfg.Log, "the controller was not told that a viewer has left; it will find out by itself", "viewer", v.id, "error", err)
	}
	v.in.releasePort()
	g.server.Record(gatewayapi.ViewerEvent{At: time.Now(), Viewer: v.id, What: "left", Channel: v.currentChannel(), Detail: why})
}

// grant is the controller's answer to a request for channels.
type grant struct {
	number uint64
	from   map[string]netip.AddrPort // sources by channel, except those that have none at present
}

// requestChannels tells the controller which channels a viewer is to get.
func (g *Gateway) requestChannels(ctx context.Context, v *viewer, channels []string, password string, burst bool) (_ grant, err error) {
	if password != "" {
		if err := g.limits.checkWrongPasswords(v.address, time.Now()); err != nil {
			return grant{}, err
		}
		defer func() {
			if isWrongPassword(err) {
				g.limits.countWrongPassword(v.address, time.Now())
			}
		}()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.cfg.Times.Ask, context.DeadlineExceeded)
	defer cancel()
	granted, err := g.cfg.Controller.Wanted(ctx, gatewayapi.Wanted{
		Gateway: g.cfg.Name, Viewer: v.id, Port: v.in.port(), Shared: g.hub != nil, Channels: append([]string{}, channels...), Password: password, Burst: burst,
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return grant{}, err
	}
	out := grant{granted.Number, map[string]netip.AddrPort{}}
	for _, s := range granted.Channels {
		out.from[s.Channel] = netip.AddrPortFrom(s.From.Addr().Unmap(), s.From.Port())
	}
	return out, nil
}

// port assigns a free port of the configured range. It searches from the port that was assigned last.
func (g *Gateway) port() (uint16, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range int(g.cfg.Ports.Last) - int(g.cfg.Ports.First) + 1 {
		if g.last >= g.cfg.Ports.Last {
			g.last = g.cfg.Ports.First - 1
		}
		if g.last++; !g.ports[g.last] {
			g.ports[g.last] = true
			return g.last, nil
		}
	}
	return 0, fmt.Errorf("all ports from %d to %d are in use", g.cfg.Ports.First, g.cfg.Ports.Last)
}

func (g *Gateway) release(port uint16) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ports, port)
}

// listen opens a port for a viewer's channels. It skips ports that other programs use.
func (g *Gateway) listen() (uint16, *net.UDPConn, error) {
	const tries = 16
	var last error
	for range tries {
		port, err := g.port()
		if err != nil {
			return 0, nil, err
		}
		socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(g.cfg.Data, port)))
		if err == nil {
			enlargeReceiveBuffer(socket)
			return port, socket, nil
		}
		g.release(port)
		last = os.NewSyscallError("listen", err)
	}
	return 0, nil, fmt.Errorf("%d ports of the range are used by others: %w", tries, last)
}

// sourcePort returns the source port of a channel's packets, or 0 if the channel is not in the
// lineup yet.
func (g *Gateway) sourcePort(channel string) uint16 {
	if l := g.lineup.Load(); l != nil {
		for _, c := range l.Channels {
			if c.Name == channel {
				return gatewayapi.SourcePort(c.Number)
			}
		}
	}
	return 0
}

// sourcePorts returns the source ports of several channels. It takes them from the sources in from,
// and those of channels without a source there from the lineup.
func (g *Gateway) sourcePorts(channels []string, from map[string]netip.AddrPort) []uint16 {
	ports := make([]uint16, len(channels))
	for i, c := range channels {
		if ports[i] = g.sourcePort(c); from[c].IsValid() {
			ports[i] = from[c].Port()
		}
	}
	return ports
}
