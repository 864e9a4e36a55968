package egress

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/internal/tasks"
)

// offer is who asks to see what, and how.
type offer struct {
	channel, password string
	from              netip.Addr
	player            string
	// open makes the outlet to the player. It does nothing until it is started.
	open func(*viewer) (outlet, error)
}

// random is an identifier of 128 random bits.
func random() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// join makes a viewer of an offer, and returns it with the answer.
func (g *Gateway) join(o offer) (v *viewer, answer string, err error) {
	done := make(chan struct{})
	if !g.tasks.Start(func(ctx context.Context) {
		defer close(done)
		v, answer, err = g.joinFor(ctx, o)
	}) {
		return nil, "", refused(http.StatusServiceUnavailable, "", "the gateway ends")
	}
	<-done
	return v, answer, err
}

func (g *Gateway) joinFor(ctx context.Context, o offer) (*viewer, string, error) {
	if !g.reserve() {
		return nil, "", errFull
	}
	if err := g.limits.join(o.from, time.Now()); err != nil {
		g.joined(nil)
		return nil, "", err
	}
	v, answer, err := g.admit(ctx, o)
	if err != nil {
		g.joined(nil)
		g.limits.leave(o.from)
		return nil, "", err
	}
	return v, answer, nil
}

// admit gives a viewer its port, its transport and its channel.
func (g *Gateway) admit(ctx context.Context, o offer) (*viewer, string, error) {
	way, err := g.inlet()
	if err != nil {
		return nil, "", refused(http.StatusServiceUnavailable, "", "no port for another viewer: %v", err)
	}
	v := newViewer(g, o.from, o.player, way)
	if v.out, err = o.open(v); err != nil {
		way.close()
		way.free()
		return nil, "", err
	}
	answer, err := v.begin(ctx, o)
	if err != nil {
		v.close()
		way.free()
		return nil, "", err
	}
	return v, answer, nil
}

// begin has the viewer get its first channel.
func (v *viewer) begin(ctx context.Context, o offer) (string, error) {
	v.tasks.Start(func(ctx context.Context) { v.in.run(ctx, v) })
	v.expect(v.g.sourcePort(o.channel))
	from, err := v.wantNew(ctx, []string{o.channel}, o.password)
	if full(err) {
		return "", errFull
	}
	if err != nil {
		return "", ofController(err, o.channel)
	}
	home := from[o.channel]
	v.mu.Lock()
	v.channel, v.home = o.channel, home
	v.mu.Unlock()
	if home.IsValid() {
		v.grant(home)
	} else {
		v.expectNothing() // it is looked for again and again
	}
	answer, err := v.out.start(ctx)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.g.cfg.Times.Ask)
		defer cancel()
		_, _ = v.g.want(ctx, v, nil, "", false) // or it finds out by itself
		return "", err
	}
	v.g.joined(v)
	v.tasks.Start(v.watchConnecting)
	v.g.server.Record(gatewayapi.ViewerEvent{At: time.Now(), Viewer: v.id, What: "joined", Channel: o.channel})
	return answer, nil
}

// watchConnecting ends a viewer that does not connect.
func (v *viewer) watchConnecting(ctx context.Context) {
	if tasks.Sleep(ctx, v.g.cfg.Times.Connect) == nil && !v.isConnected() {
		v.g.leave(v, "it did not connect")
	}
}

// listen opens a port for a viewer's channels. Ports that others use are left out.
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
			roomy(socket)
			return port, socket, nil
		}
		g.release(port)
		last = os.NewSyscallError("listen", err)
	}
	return 0, nil, fmt.Errorf("%d ports of the range are used by others: %w", tries, last)
}
