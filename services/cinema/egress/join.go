package egress

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// joinRequest is a request to watch a channel.
type joinRequest struct {
	channel, password string
	from              netip.Addr
	player            string
	// open creates the sink for the player. The sink does nothing until it is started.
	open func(*viewer) (sink, error)
}

// join adds a viewer, and returns it with the answer to its offer.
func (g *Gateway) join(o joinRequest) (v *viewer, answer string, err error) {
	done := make(chan struct{})
	if !g.tasks.Start(func(ctx context.Context) {
		defer close(done)
		v, answer, err = g.joinLimited(ctx, o)
	}) {
		return nil, "", newRefusal(http.StatusServiceUnavailable, "", "the gateway ends")
	}
	<-done
	return v, answer, err
}

func (g *Gateway) joinLimited(ctx context.Context, o joinRequest) (*viewer, string, error) {
	if !g.reserve() {
		return nil, "", errFull
	}
	if err := g.limits.join(o.from, time.Now()); err != nil {
		g.finishJoin(nil)
		return nil, "", err
	}
	v, answer, err := g.admit(ctx, o)
	if err != nil {
		g.finishJoin(nil)
		g.limits.leave(o.from)
		return nil, "", err
	}
	return v, answer, nil
}

// admit creates a viewer with its port and its transport, and starts its channel.
func (g *Gateway) admit(ctx context.Context, o joinRequest) (*viewer, string, error) {
	in, err := g.newSource()
	if err != nil {
		return nil, "", newRefusal(http.StatusServiceUnavailable, "", "no port for another viewer: %v", err)
	}
	v := newViewer(g, o.from, o.player, in)
	if v.out, err = o.open(v); err != nil {
		in.close()
		in.releasePort()
		return nil, "", err
	}
	answer, err := v.start(ctx, o)
	if err != nil {
		v.close()
		in.releasePort()
		return nil, "", err
	}
	return v, answer, nil
}

// start requests the viewer's first channel and starts its sink.
func (v *viewer) start(ctx context.Context, o joinRequest) (string, error) {
	v.tasks.Start(func(ctx context.Context) { v.in.run(ctx, v) })
	v.bufferEarly(v.g.sourcePort(o.channel))
	from, err := v.requestNew(ctx, []string{o.channel}, o.password)
	if isGatewayFull(err) {
		return "", errFull
	}
	if err != nil {
		return "", controllerRefusal(err, o.channel)
	}
	home := from[o.channel]
	v.mu.Lock()
	v.channel, v.currentSource = o.channel, home
	v.mu.Unlock()
	if home.IsValid() {
		v.startSwitch(home)
	} else {
		v.discardEarly() // checkSources asks for the channel's source again
	}
	answer, err := v.out.start(ctx)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.g.cfg.Times.Ask)
		defer cancel()
		_, _ = v.g.requestChannels(ctx, v, nil, "", false) // without this request the controller finds out from events
		return "", err
	}
	v.g.finishJoin(v)
	v.tasks.Start(v.awaitConnected)
	v.g.server.Record(gatewayapi.ViewerEvent{At: time.Now(), Viewer: v.id, What: "joined", Channel: o.channel})
	return answer, nil
}

// awaitConnected ends a viewer that does not connect in time.
func (v *viewer) awaitConnected(ctx context.Context) {
	if tasks.Sleep(ctx, v.g.cfg.Times.Connect) == nil && !v.isConnected() {
		v.g.endViewer(v, "it did not connect")
	}
}
