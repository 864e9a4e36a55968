package testbed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api/client"
	controlapi "github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// RawGateway is an egress gateway that simulates its viewers. The controller treats it like any
// other gateway. It counts what its viewers receive, and shows nothing. It is safe for concurrent
// use.
type RawGateway struct {
	*Arrivals
	*controlapi.Server[gatewayapi.ViewerEvent, gatewayapi.Viewer]
	host    *lab.LiveHost
	api     *client.Client
	serving sync.WaitGroup

	mu      sync.Mutex
	viewers map[string]gatewayapi.Viewer
	next    uint16 // port of the next viewer
}

// firstRawPort is the first port of viewers without a socket.
const firstRawPort = 10_000

// StartRawGateway starts a gateway on a host of the role CinemaOwn, and returns when the controller
// can use it.
func StartRawGateway(ctx context.Context, d *Deployment, host string) (*RawGateway, error) {
	return StartRawGatewayAt(ctx, d, host, d.lab.Host(host).Addr())
}

// StartRawGatewayAt does what StartRawGateway does, for a host whose address is not the one that
// the lab has assigned, such as a mobile device.
func StartRawGatewayAt(ctx context.Context, d *Deployment, host string, addr netip.Addr) (_ *RawGateway, err error) {
	g := &RawGateway{host: d.lab.Host(host), viewers: map[string]gatewayapi.Viewer{}, next: firstRawPort}
	g.Server = controlapi.NewServer[gatewayapi.ViewerEvent](controlapi.Options[gatewayapi.Viewer]{
		Log: slog.New(slog.DiscardHandler), MaxSessions: 10_000, Live: g.live, Sessions: func() int { return len(g.live()) },
		Status: func() controlapi.Status { return controlapi.Status{Addrs: []netip.Addr{addr}} },
	})
	defer func() {
		if err != nil {
			g.Close()
			err = fmt.Errorf("gateway %s: %w", host, err)
		}
	}()
	if g.Arrivals, err = CountArrivals(g.host, "eth0"); err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(g.host.ControlAddr(), agentPort)
	if err := g.serve(d, at); err != nil {
		return nil, err
	}
	spec := controlapi.AgentSpec{Name: host, URL: "https://" + at.String(), Addrs: []string{addr.String()}}
	if err := g.api.Do(ctx, http.MethodPost, cinemaPath+"/egress/agents/announce", spec, nil); err != nil {
		return nil, err
	}
	return g, Poll(ctx, "gateway "+host, func() error { return d.GatewayUp(ctx, host, CinemaEgress) })
}

// serve starts the server for the controller's requests, and makes the client of the controller's
// API.
func (g *RawGateway) serve(d *Deployment, at netip.AddrPort) error {
	files, url := d.GatewayFiles(g.host.Name())
	tls, err := pki.Server(files, true, pki.RoleController)
	if err != nil {
		return err
	}
	var l net.Listener
	err = g.host.Do(func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		return err
	}
	g.serving.Go(func() { _ = g.Serve(l, tls) }) // It ends with Close.
	trust, err := pki.Client(files, pki.RoleController)
	if err != nil {
		return err
	}
	g.api, err = client.New(client.Options{Server: url, TLS: trust, Dial: g.dial})
	return err
}

// dial connects from the host.
func (g *RawGateway) dial(ctx context.Context, _, to string) (c net.Conn, err error) {
	err = g.host.Do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp", to)
		return err
	})
	return c, err
}

// Close ends the gateway without notice to the controller.
func (g *RawGateway) Close() {
	if g.api != nil {
		g.api.Close()
	}
	g.Server.Close()
	g.serving.Wait()
	if g.Arrivals != nil {
		g.Arrivals.Close()
	}
}

// live returns the viewers that the gateway reports.
func (g *RawGateway) live() (all []gatewayapi.Viewer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range g.viewers {
		all = append(all, v)
	}
	return all
}

// RawViewer is a viewer of a RawGateway. Its methods must not be called concurrently.
type RawViewer struct {
	ID   string
	Port uint16
	g    *RawGateway
	at   time.Time
}

// NewViewer adds a viewer that receives no channels yet, at a port without a socket.
func (g *RawGateway) NewViewer() *RawViewer {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next++
	return g.ViewerAt(g.next - 1)
}

// ViewerAt adds a viewer that receives no channels yet, at a port for which the caller has a
// socket.
func (g *RawGateway) ViewerAt(port uint16) *RawViewer {
	var id [16]byte
	_, _ = rand.Read(id[:]) // It never fails.
	return &RawViewer{ID: hex.EncodeToString(id[:]), Port: port, g: g, at: time.Now().UTC()}
}

// Watch sets the channels that the viewer receives; without channels the viewer leaves. It returns
// when the switches have the rules.
func (v *RawViewer) Watch(ctx context.Context, channels ...string) error {
	channels = append([]string{}, channels...) // An empty list must not become null in JSON.
	v.note(channels)
	w := gatewayapi.Wanted{Gateway: v.g.host.Name(), Viewer: v.ID, Port: v.Port, Channels: channels}
	var granted gatewayapi.Granted
	if err := v.g.api.Do(ctx, http.MethodPost, cinemaPath+"/wanted", w, &granted); err != nil {
		return fmt.Errorf("viewer at port %d of %s: %w", v.Port, v.g.host.Name(), err)
	}
	return nil
}

// Tell makes the gateway report the channels that the viewer watches in its next event, as a
// gateway does after a restart of the controller. So thousands of viewers can arrive at once.
func (v *RawViewer) Tell(channels ...string) { v.note(channels) }

func (v *RawViewer) note(channels []string) {
	v.g.mu.Lock()
	defer v.g.mu.Unlock()
	if len(channels) == 0 {
		delete(v.g.viewers, v.ID)
		return
	}
	v.g.viewers[v.ID] = gatewayapi.Viewer{ID: v.ID, Port: v.Port, Channels: channels, Since: v.at, Player: "whep"}
}

// Expect starts counting what the viewer receives of the channel with the given number.
func (v *RawViewer) Expect(number uint16) error { return v.g.Expect(v.flow(number)) }

// Got returns what the viewer has received of the channel since Expect.
func (v *RawViewer) Got(number uint16) (Arrived, error) { return v.g.Of(v.flow(number)) }

func (v *RawViewer) flow(number uint16) PortPair {
	return PortPair{From: gatewayapi.SourcePort(number), To: v.Port}
}
