package egress

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/cinema/media"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/units"
)

// group bounds what is kept of a channel for a viewer: more than the longest group of pictures.
var group = media.Limits{Bytes: 4 << 20, Packets: 4096, Age: 10 * time.Second}

// refreshEvery is the least time between two pictures that a player has again.
const refreshEvery = 500 * time.Millisecond

// outlet is how a viewer's stream gets to its player.
type outlet interface {
	// start has it wait for the player, and returns what answers the player's offer, if there
	// was one.
	start(ctx context.Context) (answer string, err error)
	// send has the player get a packet. That it cannot be sent is noticed elsewhere.
	send(o media.Out)
	// close ends it, and waits for what runs for it.
	close()
}

// viewer is one player: its transport, the port at which its channels come, and the stream
// that is made of them.
type viewer struct {
	g       *Gateway
	id      string // as the controller knows it
	secret  string // of the session
	address netip.Addr
	since   time.Time
	in      inlet
	player  string // how it plays, as the controller is told
	out     outlet
	tasks   *tasks.Group
	turn    chan struct{} // holds one while a change is made

	mu       sync.Mutex // of what follows, and of what goes to out
	splicer  *media.Splicer
	shown    *media.Cache   // of the channel in the stream
	coming   *media.Cache   // of the one that is to be
	home     netip.AddrPort // where the channel that is seen comes from
	expected netip.AddrPort // where the one comes from that is to be
	early    early
	cut      chan struct{} // closed at the cut
	first    media.Out     // after it, without its payload
	replace  context.CancelCauseFunc
	channel  string // that is seen
	wanted   []string

	heard     time.Time // when the last packet came
	connected bool
	whole     bool // the last packet ended a picture
	refresh   bool // the player wants the picture again
	refreshed time.Time
	asked     time.Time // for what is missing
	changes   int
	zap       time.Duration
}

// newViewer returns one without an outlet.
func newViewer(g *Gateway, a netip.Addr, player string, in inlet) *viewer {
	return &viewer{
		g: g, id: random(), secret: random(), address: a, player: player, since: time.Now(), in: in,
		tasks: tasks.New(), turn: make(chan struct{}, 1),
		splicer: media.NewSplicer(), shown: media.NewCache(group), coming: media.NewCache(group), whole: true,
	}
}

// close ends the viewer and waits for what runs for it.
func (v *viewer) close() {
	v.tasks.Cancel()
	v.in.close()
	v.out.close()
	v.tasks.Stop()
}

// tell is what the controller is told.
func (v *viewer) tell() gatewayapi.Viewer {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.splicer.Counts()
	return gatewayapi.Viewer{
		ID: v.id, Port: v.in.port(), Shared: v.g.hub != nil, Channels: slices.Clone(v.wanted), Since: v.since, Address: v.address, Player: v.player,
		Changes: v.changes, Zap: units.Duration(v.zap), Packets: c.Packets, Lost: c.Lost,
	}
}

// seen is the channel that the viewer sees.
func (v *viewer) seen() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.channel
}

// want is Gateway.want, remembered for what the controller is told each second.
func (v *viewer) want(ctx context.Context, channels []string, password string, burst bool) (map[string]netip.AddrPort, error) {
	v.mu.Lock()
	before := v.wanted
	v.wanted = channels
	v.mu.Unlock()
	v.in.follow(v.g.sourcePorts(channels, nil))
	from, err := v.g.want(ctx, v, channels, password, burst)
	if err != nil {
		v.mu.Lock()
		v.wanted = before
		v.mu.Unlock()
		channels = before
	}
	v.in.follow(v.g.sourcePorts(channels, from))
	return from, err
}

// wantNew is want for a first channel that is new: the ingress gateway sends what has come since
// its last key frame, unless it is here.
func (v *viewer) wantNew(ctx context.Context, channels []string, password string) (map[string]netip.AddrPort, error) {
	v.in.follow(v.g.sourcePorts(channels, nil)) // or it may be forgotten just now
	burst := v.g.cfg.Burst && !v.in.has(v.g.sourcePort(channels[0]), time.Now())
	from, err := v.want(ctx, channels, password, burst)
	if home := from[channels[0]]; err == nil && home.IsValid() && v.g.cfg.Burst && !burst && len(v.in.group(home, time.Now())) == 0 {
		return v.want(ctx, channels, password, true) // it was of another source
	}
	return from, err
}

func (v *viewer) due() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.splicer.Due()
}

// take takes one datagram.
func (v *viewer) take(from netip.AddrPort, raw []byte, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if from != v.expected && from != v.splicer.Current() {
		if !v.early.keep(from, raw) {
			v.g.metrics.strange.Inc()
		}
		return
	}
	v.heard = now
	v.put(from, raw, now)
	v.ask(now)
	v.repair(now)
}

// put has a datagram go into the stream. v.mu is held.
func (v *viewer) put(from netip.AddrPort, raw []byte, now time.Time) {
	p, err := media.Parse(raw)
	if err != nil {
		v.g.metrics.strange.Inc()
		return
	}
	kept := v.shown
	if from == v.expected {
		kept = v.coming
	}
	kept.Add(p, raw, now)
	v.send(v.splicer.Push(from, p, now))
}

// tick goes on without what has not come in time.
func (v *viewer) tick(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.send(v.splicer.Tick(now))
	v.ask(now)
	v.repair(now)
}

// send has the player get packets; v.mu is held.
func (v *viewer) send(out []media.Out) {
	for _, o := range out {
		if o.Cut {
			v.shown, v.coming = v.coming, media.NewCache(group)
			v.expected = netip.AddrPort{}
			close(v.cut)
			v.first = o
			v.first.Payload = nil
		}
		if o.Video() {
			v.whole = o.Marker
		}
		if o.KeyFrame() {
			v.refresh = false // the player has what it needs
		}
		if v.connected {
			v.g.metrics.out.Add(uint64(len(o.Payload)))
			v.out.send(o)
		}
	}
}

// again has the player get its picture again from the key frame on, as soon as it may.
func (v *viewer) again(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.refresh = true
	v.repair(now)
}

// repair gives the player its picture again if it wants it, between two pictures. v.mu is held.
func (v *viewer) repair(now time.Time) {
	if !v.refresh || !v.whole || !v.connected || now.Sub(v.refreshed) < refreshEvery {
		return
	}
	v.refresh, v.refreshed = false, now
	var packets []media.Packet
	for _, raw := range v.shown.Group() {
		if p, err := media.Parse(raw); err == nil {
			packets = append(packets, p)
		}
	}
	v.g.metrics.repaired.Inc()
	v.send(v.splicer.Repeat(packets, now))
}

// connect has the player get what there is: the picture from the last key frame on, at once.
func (v *viewer) connect(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.connected, v.refresh, v.whole = true, true, true
	v.repair(now)
}

func (v *viewer) isConnected() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.connected
}
