package egress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// changeResult is the answer to a change of channel.
type changeResult struct {
	// Zap is the time from the request to the first packet of the new channel's key frame.
	Zap units.Duration `json:"zap"`
	// Timestamp is the RTP timestamp of this packet in the viewer's stream, by which a page can tell
	// when the picture is shown. It is omitted if nothing has changed.
	Timestamp *uint32 `json:"timestamp,omitempty"`
	// time is the time of this packet since the start of the stream.
	time time.Duration
}

// change switches the viewer to another channel. Changes are made one at a time; a later change
// replaces the one that waits or is being made.
func (v *viewer) change(channel, password string) (z changeResult, err error) {
	done := make(chan struct{})
	if !v.tasks.Start(func(ctx context.Context) {
		defer close(done)
		z, err = v.changeSerialized(ctx, channel, password)
	}) {
		return z, errGone
	}
	<-done
	if errors.Is(err, context.Canceled) {
		err = errGone
	}
	return z, err
}

func (v *viewer) changeSerialized(ctx context.Context, channel, password string) (z changeResult, err error) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	v.mu.Lock()
	if v.cancelChange != nil {
		v.cancelChange(errReplaced)
	}
	v.cancelChange = cancel
	v.mu.Unlock()
	select {
	case v.changing <- struct{}{}:
		defer func() { <-v.changing }()
	case <-ctx.Done():
		return z, context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return z, context.Cause(ctx)
	}
	old := v.currentChannel()
	if channel == old {
		return z, nil
	}
	return v.changeFrom(ctx, began, old, channel, password)
}

// changeAttempts is how many times a change is made whose channel is not seen in time.
const changeAttempts = 2

// lateError means that the new channel's key frame has not arrived in time. It holds the number of
// datagrams of the channel that have arrived.
type lateError struct{ datagrams int }

// Error implements error.
func (e lateError) Error() string {
	return fmt.Sprintf("no key frame in time, in %d datagrams", e.datagrams)
}

// changeFrom makes the change. If the new channel's key frame does not arrive in time, it makes the change
// again from the beginning, so that the controller and the switches do their part anew. Each late change
// is counted and logged, because nothing else shows why a viewer does not get its channel.
func (v *viewer) changeFrom(ctx context.Context, began time.Time, old, channel, password string) (z changeResult, err error) {
	for attempt := 1; attempt <= changeAttempts; attempt++ {
		z, err = v.tryChange(ctx, began, old, channel, password)
		late, ok := errors.AsType[lateError](err)
		if !ok {
			return z, err
		}
		v.g.metrics.late.Inc()
		v.g.warnLimiter.Warn(v.g.cfg.Log, "a viewer does not see the channel to which it changes", "viewer", v.id, "channel", channel, "datagrams", late.datagrams, "attempt", attempt)
	}
	return z, newRefusal(http.StatusGatewayTimeout, "channel", "channel %q sends no key frame within %v; you still see %q", channel, changeAttempts*v.g.cfg.Times.KeyFrame, old)
}

// tryChange requests both channels, switches the stream, and records the change. When the controller reads
// the record, it ends the old channel. Without make-before-break, or if there is no room for two channels,
// or if the old channel has been deleted, the old channel ends first.
func (v *viewer) tryChange(ctx context.Context, began time.Time, old, channel, password string) (z changeResult, err error) {
	v.bufferEarly(v.g.sourcePort(channel))
	wanted := []string{channel, old}
	if !v.g.cfg.MakeBeforeBreak {
		wanted = wanted[:1]
	}
	from, err := v.requestNew(ctx, wanted, password)
	if len(wanted) > 1 && (isGatewayFull(err) || isUnknownChannel(err, 1) && !isUnknownChannel(err, 0)) {
		wanted = wanted[:1]
		from, err = v.requestNew(ctx, wanted, password)
	}
	if err != nil {
		v.discardEarly()
		return z, err
	}
	if !from[channel].IsValid() {
		v.discardEarly()
		v.keepOnly(old)
		return z, newRefusal(http.StatusServiceUnavailable, "channel", "channel %q comes from nowhere at present; you still see %q", channel, old)
	}
	cut := v.startSwitch(from[channel])
	stopBursts := v.repeatBursts(wanted)
	err = v.waitForCut(ctx, cut)
	if err != nil && v.cancelSwitch(cut) {
		stopBursts()
		if !errors.Is(err, context.Canceled) {
			v.keepOnly(old)
		}
		return z, err
	}
	zap := time.Since(began)
	stopBursts() // a request in progress names the old channel, too
	first := v.finishChange(channel, from[channel], zap)
	return changeResult{units.Duration(zap.Round(time.Microsecond)), &first.Timestamp, first.Time}, nil
}

// waitForCut waits until the stream has switched to the new channel. It returns a lateError if that takes
// too long.
func (v *viewer) waitForCut(ctx context.Context, cut <-chan struct{}) error {
	late := time.NewTimer(v.g.cfg.Times.KeyFrame)
	defer late.Stop()
	select {
	case <-cut:
		return nil
	case <-late.C:
		v.mu.Lock()
		defer v.mu.Unlock()
		return lateError{v.nextDatagrams}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// keepOnly requests only the given channel, which the viewer sees, after a change to another one has
// failed. If the request does not reach the controller, the controller learns from the gateway's
// reports which channel the viewer is to get.
func (v *viewer) keepOnly(channel string) {
	_, err := v.requestChannels(context.WithoutCancel(v.tasks.Context()), []string{channel}, "", false)
	if err != nil {
		v.mu.Lock()
		v.wanted = []string{channel}
		v.mu.Unlock()
		v.in.setPorts(v.g.sourcePorts([]string{channel}, nil))
		v.g.warnLimiter.Warn(v.g.cfg.Log, "the controller was not told that a viewer needs one channel only", "viewer", v.id, "channel", channel, "error", err)
	}
}

// bufferEarly starts to buffer datagrams of a channel whose source is not known yet. port is the
// source port of the channel's datagrams, or zero if that is not known either.
func (v *viewer) bufferEarly(port uint16) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.early = earlyBuffer{open: true, port: port}
}

func (v *viewer) discardEarly() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.early = earlyBuffer{}
}

// startSwitch starts to switch the stream to the channel from a source, beginning with the
// datagrams that have arrived already. It returns a channel that is closed when the stream has
// switched.
func (v *viewer) startSwitch(from netip.AddrPort) (cut <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.awaitKeyFrame(from)
	cut = v.cut
	kept := v.early.datagrams
	v.early = earlyBuffer{}
	now := time.Now()
	for _, raw := range v.in.group(from, now) {
		v.splice(from, raw, now)
	}
	for _, d := range kept {
		if d.from == from {
			v.splice(from, d.raw, now)
		}
	}
	return cut
}

// cancelSwitch keeps the stream on its present channel. It reports false if the stream has just
// switched.
func (v *viewer) cancelSwitch(cut <-chan struct{}) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-cut:
		return false
	default:
	}
	v.splicer.CancelChange()
	v.nextSource = netip.AddrPort{}
	if v.currentSource.IsValid() && v.splicer.Current() != v.currentSource { // the first channel has had no key frame yet
		v.awaitKeyFrame(v.currentSource)
	}
	return true
}

// awaitKeyFrame makes the stream switch to a source at its next key frame. v.mu is held.
func (v *viewer) awaitKeyFrame(from netip.AddrPort) {
	v.cut, v.nextSource, v.nextCache, v.nextDatagrams = make(chan struct{}), from, media.NewCache(groupLimits), 0
	v.splicer.Change(from)
	if !v.splicer.Changing() { // the stream shows this source already
		v.nextSource = netip.AddrPort{}
		close(v.cut)
	}
}

// finishChange records the change for the controller, and returns the new channel's first packet
// in the stream. The reports that follow the record do not have the old channel any more.
func (v *viewer) finishChange(channel string, from netip.AddrPort, zap time.Duration) (first media.Out) {
	v.mu.Lock()
	v.channel, v.currentSource, v.zap, v.wanted = channel, from, zap, []string{channel}
	v.changes++
	first = v.first
	grant := v.grant
	v.mu.Unlock()
	v.in.setPorts([]uint16{from.Port()})
	v.g.metrics.zap.Observe(zap.Seconds())
	v.g.server.Record(gatewayapi.ViewerEvent{At: time.Now(), Viewer: v.id, What: "changed", Channel: channel, Zap: units.Duration(zap), Grant: grant})
	return first
}
