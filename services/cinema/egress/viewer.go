package egress

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// refreshInterval is the least time between two repetitions of a player's picture.
const refreshInterval = 500 * time.Millisecond

// sink sends a viewer's stream to its player.
type sink interface {
	// start makes the sink wait for the player, and returns the answer to the player's offer,
	// if there was one.
	start(ctx context.Context) (answer string, err error)
	// send sends a packet to the player. Errors are noticed elsewhere.
	send(o media.Out)
	// close closes the sink and waits for its goroutines.
	close()
}

// viewer is one player: its sink, the source of its channels, and the stream made of them.
type viewer struct {
	g        *Gateway
	id       string // known to the controller
	secret   string // secret of the session's URL
	address  netip.Addr
	since    time.Time
	in       source
	player   string // protocol of the player
	out      sink
	tasks    *tasks.Group
	changing chan struct{} // holds one element during a change

	mu            sync.Mutex // guards the fields below and the order of packets to out
	splicer       *media.Splicer
	currentCache  *media.Cache   // of the channel in the stream
	nextCache     *media.Cache   // of the next channel
	currentSource netip.AddrPort // source of the present channel
	nextSource    netip.AddrPort // source of the next channel
	nextDatagrams int            // datagrams from nextSource
	early         earlyBuffer
	cut           chan struct{} // closed when the stream has switched
	first         media.Out     // first packet after the switch, without its payload
	cancelChange  context.CancelCauseFunc
	channel       string // the channel that the viewer sees
	wanted        []string
	grant         uint64 // number of the controller's last grant

	receivedAt      time.Time // when the last packet arrived
	connected       bool
	betweenPictures bool // the last packet ended a picture
	wantsRefresh    bool // the player has requested the picture again
	refreshed       time.Time
	repairedAt      time.Time // last request for missing packets
	changes         int
	zap             time.Duration
}

// newViewer returns a viewer without a sink.
func newViewer(g *Gateway, a netip.Addr, player string, in source) *viewer {
	return &viewer{
		g: g, id: randomID(), secret: randomID(), address: a, player: player, since: time.Now(), in: in,
		tasks: tasks.New(), changing: make(chan struct{}, 1),
		splicer: media.NewSplicer(), currentCache: media.NewCache(groupLimits), nextCache: media.NewCache(groupLimits), betweenPictures: true,
	}
}

// close ends the viewer and waits for its goroutines.
func (v *viewer) close() {
	v.tasks.Cancel()
	v.in.close()
	v.out.close()
	v.tasks.Stop()
}

// report returns the report about the viewer that the controller gets.
func (v *viewer) report() gatewayapi.Viewer {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.splicer.Counts()
	return gatewayapi.Viewer{
		ID: v.id, Port: v.in.port(), Shared: v.g.hub != nil, Channels: slices.Clone(v.wanted), Since: v.since, Address: v.address, Player: v.player,
		Changes: v.changes, Zap: units.Duration(v.zap), Packets: c.Packets, Lost: c.Lost,
	}
}

// currentChannel returns the channel that the viewer sees.
func (v *viewer) currentChannel() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.channel
}

// requestChannels requests channels for the viewer by Gateway.requestChannels. It records them for the
// viewer's report, and makes the source accept datagrams from their source ports.
func (v *viewer) requestChannels(ctx context.Context, channels []string, password string, burst bool) (map[string]netip.AddrPort, error) {
	v.mu.Lock()
	before := v.wanted
	v.wanted = channels
	v.mu.Unlock()
	v.in.setPorts(v.g.sourcePorts(channels, nil))
	granted, err := v.g.requestChannels(ctx, v, channels, password, burst)
	v.mu.Lock()
	if err != nil {
		channels = before
	} else {
		v.grant = granted.number
	}
	v.wanted = channels
	v.mu.Unlock()
	v.in.setPorts(v.g.sourcePorts(channels, granted.from))
	return granted.from, err
}

// requestNew requests channels of which the first is new. It also requests a burst of that
// channel unless the source has it cached.
func (v *viewer) requestNew(ctx context.Context, channels []string, password string) (map[string]netip.AddrPort, error) {
	v.in.setPorts(v.g.sourcePorts(channels, nil)) // keeps the cache from being dropped now
	burst := v.g.cfg.Burst && !v.in.hasChannel(v.g.sourcePort(channels[0]), time.Now())
	from, err := v.requestChannels(ctx, channels, password, burst)
	if home := from[channels[0]]; err == nil && home.IsValid() && v.g.cfg.Burst && !burst && len(v.in.group(home, time.Now())) == 0 {
		return v.requestChannels(ctx, channels, password, true) // the cached channel came from another source
	}
	return from, err
}

func (v *viewer) due() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.splicer.Due()
}

// receive processes one datagram.
func (v *viewer) receive(from netip.AddrPort, raw []byte, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if from != v.nextSource && from != v.splicer.Current() {
		if !v.early.add(from, raw) {
			v.g.metrics.unexpected.Inc()
		}
		return
	}
	v.receivedAt = now
	v.splice(from, raw, now)
	v.requestRepair(now)
	v.refreshPicture(now)
}

// splice puts a datagram into the stream. v.mu is held.
func (v *viewer) splice(from netip.AddrPort, raw []byte, now time.Time) {
	p, err := media.Parse(raw)
	if err != nil {
		v.g.metrics.unexpected.Inc()
		return
	}
	kept := v.currentCache
	if from == v.nextSource {
		kept = v.nextCache
		v.nextDatagrams++
	}
	kept.Add(p, raw, now)
	v.send(v.splicer.Push(from, p, now))
}

// tick does what is due at a time: it gives up packets that have not arrived, requests missing
// packets of the picture again, and refreshes the picture of a player that has requested that.
func (v *viewer) tick(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.send(v.splicer.Tick(now))
	v.requestRepair(now)
	v.refreshPicture(now)
}

// send sends packets to the player. v.mu is held.
func (v *viewer) send(out []media.Out) {
	for _, o := range out {
		if o.Cut {
			v.currentCache, v.nextCache = v.nextCache, media.NewCache(groupLimits)
			v.nextSource = netip.AddrPort{}
			close(v.cut)
			v.first = o
			v.first.Payload = nil
		}
		if o.Video() {
			v.betweenPictures = o.Marker
		}
		if o.KeyFrame() {
			v.wantsRefresh = false // a key frame is on its way
		}
		if v.connected {
			v.g.metrics.out.Add(uint64(len(o.Payload)))
			v.out.send(o)
		}
	}
}

// requestRefresh repeats the stream from the last key frame on, so that the player can restore its
// picture. It waits until the present picture is complete, and for refreshInterval since the last time.
func (v *viewer) requestRefresh(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wantsRefresh = true
	v.refreshPicture(now)
}

// refreshPicture repeats the stream from the last key frame on if the player has requested that, but
// only between two pictures and once in refreshInterval. v.mu is held.
func (v *viewer) refreshPicture(now time.Time) {
	if !v.wantsRefresh || !v.betweenPictures || !v.connected || now.Sub(v.refreshed) < refreshInterval {
		return
	}
	v.wantsRefresh, v.refreshed = false, now
	var packets []media.Packet
	for _, raw := range v.currentCache.Group() {
		if p, err := media.Parse(raw); err == nil {
			packets = append(packets, p)
		}
	}
	v.g.metrics.repaired.Inc()
	v.send(v.splicer.Repeat(packets, now))
}

// connect marks the player as connected, and sends it the stream from the last key frame on.
func (v *viewer) connect(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.connected, v.wantsRefresh, v.betweenPictures = true, true, true
	v.refreshPicture(now)
}

func (v *viewer) isConnected() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.connected
}

// randomID returns an identifier of 128 random bits.
func randomID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// silent returns the viewer's channel, and reports whether no packets of it have arrived for longer
// than sourceTimeout.
func (v *viewer) silent(now time.Time) (channel string, silent bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.channel, v.connected && now.Sub(v.receivedAt) > sourceTimeout
}

// unlessChanging calls f unless a change is in progress. No change starts until f returns.
func (v *viewer) unlessChanging(f func()) {
	select {
	case v.changing <- struct{}{}:
		defer func() { <-v.changing }()
		f()
	default:
	}
}

// sourceMoved switches the viewer to a new source of the given channel, unless the viewer has changed
// to another channel.
func (v *viewer) sourceMoved(channel string, from netip.AddrPort) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.channel == channel && from.IsValid() && v.currentSource != from {
		v.currentSource = from
		v.in.setPorts([]uint16{from.Port()}) // the port differs if the channel's number has changed
		v.in.group(from, time.Now())         // starts to cache the channel from there
		v.awaitKeyFrame(from)
	}
}

// Bounds of the buffer for a channel whose source is not known yet: a group of pictures.
const (
	maxEarly      = 4096
	maxEarlyBytes = 4 << 20
)

// earlyBuffer holds datagrams that arrive before the controller's answer names their source.
// This happens because the switches have their rules, and the burst is on its way, before the
// answer arrives. The answer then tells which of the datagrams belong to the channel.
type earlyBuffer struct {
	open      bool
	port      uint16 // expected source port; zero if it is not known
	datagrams []datagram
	bytes     int
}

// add adds a copy of a datagram, and reports whether it may belong to the expected channel.
func (b *earlyBuffer) add(from netip.AddrPort, raw []byte) bool {
	if !b.open || b.port != 0 && from.Port() != b.port || len(b.datagrams) >= maxEarly || b.bytes+len(raw) > maxEarlyBytes {
		return false
	}
	b.datagrams = append(b.datagrams, datagram{from, bytes.Clone(raw)})
	b.bytes += len(raw)
	return true
}

const (
	// repairInterval is the least time between two requests to repeat a viewer's channel
	// because packets are missing.
	repairInterval = 250 * time.Millisecond
	// maxRepairs bounds how many such requests, of all viewers, are in progress at the same time.
	maxRepairs = 16
)

// requestRepair requests missing packets of the picture again: from the source's cache, and then from
// the ingress gateway, which has all packets of the picture. v.mu is held.
func (v *viewer) requestRepair(now time.Time) {
	if !v.g.cfg.Burst || v.nextSource.IsValid() || now.Sub(v.repairedAt) < repairInterval || !v.splicer.Missing(now) {
		return
	}
	v.repairedAt = now
	current := v.splicer.Current()
	for _, raw := range v.in.group(current, now) { // perhaps only this viewer has lost them
		v.splice(current, raw, now)
	}
	if !v.splicer.Missing(now) || !v.in.allowRepair(current, now) {
		return
	}
	select {
	case v.g.repairs <- struct{}{}:
	default:
		return
	}
	channel := v.channel
	if !v.tasks.Start(func(ctx context.Context) {
		defer func() { <-v.g.repairs }()
		v.unlessChanging(func() { v.requestBurst(ctx, channel) })
	}) {
		<-v.g.repairs
	}
}

// requestBurst requests a channel's packets since its last key frame, if the viewer still sees the
// channel.
func (v *viewer) requestBurst(ctx context.Context, channel string) {
	if v.currentChannel() != channel {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, repairInterval)
	defer cancel()
	v.g.metrics.repairs.Inc()
	_, _ = v.g.requestChannels(ctx, v, []string{channel}, "", true) // another request follows soon if this one fails
}

// repeatBursts requests the new channel's packets since its last key frame again and again while a
// change waits for a key frame, because the beginning of that may be lost. The pauses between the
// requests double. The returned function ends the repetition, and waits for a request in progress.
func (v *viewer) repeatBursts(wanted []string) (stop func()) {
	ctx, cancel := context.WithCancel(v.tasks.Context())
	done := make(chan struct{})
	if !v.g.cfg.Burst || !v.tasks.Start(func(context.Context) {
		defer close(done)
		for pause := repairInterval; tasks.Sleep(ctx, pause) == nil; pause *= 2 {
			v.g.metrics.repairs.Inc()
			_, _ = v.requestChannels(v.tasks.Context(), wanted, "", true)
		}
	}) {
		close(done)
	}
	return func() { cancel(); <-done }
}
