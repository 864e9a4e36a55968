package egress

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/cinema/media"
	"github.com/sluice-net/sluice/internal/units"
)

// zapped is the answer to a change of channel.
type zapped struct {
	// Zap is how long it took until the first packet of the new channel's key frame.
	Zap units.Duration `json:"zap"`
	// Timestamp is that of this packet in the viewer's stream, by which a page knows when the
	// picture is shown. It is left out if nothing has changed.
	Timestamp *uint32 `json:"timestamp,omitempty"`
	// time is that of this packet since the stream began.
	time time.Duration
}

// change has the viewer see another channel. One change is made at a time: another one that
// comes meanwhile replaces it.
func (v *viewer) change(channel, password string) (z zapped, err error) {
	done := make(chan struct{})
	if !v.tasks.Start(func(ctx context.Context) {
		defer close(done)
		z, err = v.changeInTurn(ctx, channel, password)
	}) {
		return z, errGone
	}
	<-done
	if errors.Is(err, context.Canceled) {
		err = errGone
	}
	return z, err
}

func (v *viewer) changeInTurn(ctx context.Context, channel, password string) (z zapped, err error) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	v.mu.Lock()
	if v.replace != nil {
		v.replace(errReplaced)
	}
	v.replace = cancel
	v.mu.Unlock()
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return z, context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return z, context.Cause(ctx)
	}
	old := v.seen()
	if channel == old {
		return z, nil
	}
	return v.changeFrom(ctx, began, old, channel, password)
}

// changeFrom makes the change: both channels come, the stream goes over, the old one is given up.
// Without make-before-break, or if there is no room for two or the old one has been deleted, the
// old one ends first.
func (v *viewer) changeFrom(ctx context.Context, began time.Time, old, channel, password string) (z zapped, err error) {
	v.expect(v.g.sourcePort(channel))
	wanted := []string{channel, old}
	if !v.g.cfg.MakeBeforeBreak {
		wanted = wanted[:1]
	}
	from, err := v.wantNew(ctx, wanted, password)
	if len(wanted) > 1 && (full(err) || unknown(err, 1) && !unknown(err, 0)) {
		wanted = wanted[:1]
		from, err = v.wantNew(ctx, wanted, password)
	}
	if err != nil {
		v.expectNothing()
		return z, err
	}
	if !from[channel].IsValid() {
		v.expectNothing()
		v.wantOnly(old)
		return z, refused(http.StatusServiceUnavailable, "channel", "channel %q comes from nowhere at present; you still see %q", channel, old)
	}
	cut := v.grant(from[channel])
	settle := v.askMeanwhile(wanted)
	err = v.waitFor(ctx, cut, channel, old)
	if err != nil && v.stay(cut) {
		settle()
		if !errors.Is(err, context.Canceled) {
			v.wantOnly(old)
		}
		return z, err
	}
	zap := time.Since(began)
	first := v.changed(channel, from[channel], zap)
	settle()
	v.wantOnly(channel)
	return zapped{units.Duration(zap.Round(time.Microsecond)), &first.Timestamp, first.Time}, nil
}

// waitFor waits for the cut.
func (v *viewer) waitFor(ctx context.Context, cut <-chan struct{}, channel, old string) error {
	late := time.NewTimer(v.g.cfg.Times.KeyFrame)
	defer late.Stop()
	select {
	case <-cut:
		return nil
	case <-late.C:
		return refused(http.StatusGatewayTimeout, "channel", "channel %q sends no key frame within %v; you still see %q", channel, v.g.cfg.Times.KeyFrame, old)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wantOnly has nothing but a channel come. If the controller does not hear it, it will from
// what it is told each second.
func (v *viewer) wantOnly(channel string) {
	_, err := v.want(context.WithoutCancel(v.tasks.Context()), []string{channel}, "", false)
	if err != nil {
		v.mu.Lock()
		v.wanted = []string{channel}
		v.mu.Unlock()
		v.in.follow(v.g.sourcePorts([]string{channel}, nil))
		v.g.strange.Warn(v.g.cfg.Log, "the controller was not told that a viewer needs one channel only", "viewer", v.id, "channel", channel, "error", err)
	}
}

// expect has datagrams kept whose source is not known yet.
func (v *viewer) expect(port uint16) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.early = early{open: true, port: port}
}

func (v *viewer) expectNothing() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.early = early{}
}

// grant has the stream go over to the channel from a source, as soon as it can; what is
// returned is closed when it has.
func (v *viewer) grant(from netip.AddrPort) (cut <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.await(from)
	cut = v.cut
	kept := v.early.all
	v.early = early{}
	now := time.Now()
	for _, raw := range v.in.group(from, now) {
		v.put(from, raw, now)
	}
	for _, d := range kept {
		if d.from == from {
			v.put(from, d.raw, now)
		}
	}
	return cut
}

// stay has the stream stay where it is; false if it has gone over just now.
func (v *viewer) stay(cut <-chan struct{}) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-cut:
		return false
	default:
	}
	v.splicer.Stay()
	v.expected = netip.AddrPort{}
	if v.home.IsValid() && v.splicer.Current() != v.home { // the first channel has not had a key frame yet
		v.await(v.home)
	}
	return true
}

// await has the stream go over to a source as soon as that has a key frame. v.mu is held.
func (v *viewer) await(from netip.AddrPort) {
	v.cut, v.expected, v.coming = make(chan struct{}), from, media.NewCache(group)
	v.splicer.Change(from)
	if !v.splicer.Changing() { // it is there already
		v.expected = netip.AddrPort{}
		close(v.cut)
	}
}

// changed notes what is seen now, and returns the packet from which on it is.
func (v *viewer) changed(channel string, from netip.AddrPort, zap time.Duration) (first media.Out) {
	v.mu.Lock()
	v.channel, v.home, v.zap = channel, from, zap
	v.changes++
	first = v.first
	v.mu.Unlock()
	v.g.metrics.zap.Observe(zap.Seconds())
	v.g.server.Record(gatewayapi.ViewerEvent{At: time.Now(), Viewer: v.id, What: "changed", Channel: channel, Zap: units.Duration(zap)})
	return first
}
