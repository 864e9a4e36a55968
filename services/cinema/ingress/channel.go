package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

const (
	// silenceTimeout is how long a channel may be silent before it is down. With the time until
	// that is detected and reported, the controller knows of it within two seconds.
	silenceTimeout = 1600 * time.Millisecond
	// problemTTL is how long a problem is reported after it last occurred. It applies to dropped
	// datagrams and to those that could not be sent.
	problemTTL = 5 * time.Second
	// refusalTTL is how long a channel that is not live reports that a producer was refused.
	refusalTTL = 30 * time.Second
	// headerBytes is the length of the IP and UDP headers, which count against a channel's
	// rate.
	headerBytes = 28
	// senderReport is the packet type of the only RTCP packets that viewers need (RFC 3550,
	// 12.1).
	senderReport = 200
)

// groupLimits bounds a channel's cached group of pictures.
var groupLimits = media.Limits{Bytes: 4 << 20, Packets: 8192, Age: 12 * time.Second}

// channel is a channel that the controller has assigned to the gateway.
type channel struct {
	name       string
	number     uint16
	to         netip.AddrPort
	out        output
	cache      *media.Cache
	tasks      *tasks.Group // goroutines of the channel
	log        *slog.Logger
	record     func(gatewayapi.ChannelEvent)
	totals     *totals
	epoch      time.Time
	logLimiter lograte.Limit
	bursts     atomic.Int32 // in progress

	order sync.Mutex // held from the cache to the output, so that both get datagrams in the same order

	mu          sync.Mutex
	spec        gatewayapi.Channel
	sent        slidingWindow // bits
	onAir       gatewayapi.OnAir
	since       time.Time
	receivedAt  time.Time // time of the last datagram
	dropped     int       // datagrams dropped since the excess began
	excessAt    time.Time // when the last datagram was dropped
	producer    string
	sourceError string    // why the source has ended
	sendError   string    // why the last unsent datagram was not sent
	unsentAt    time.Time // when that datagram was to be sent
	blind       bool      // viewers get a black picture in the place of the producer's
	shown       string    // the picture that viewers get of a producer that is transcoded
	heardAt     [numMedia]time.Time
	refusal     string    // why the last producer was refused
	refusedAt   time.Time // when the last producer was refused
	session     *session  // the producer's session, or nil
}

// newChannel returns a channel without a producer.
func newChannel(spec gatewayapi.Channel, out output, log *slog.Logger, record func(gatewayapi.ChannelEvent), t *totals) *channel {
	now := time.Now()
	return &channel{
		name: spec.Name, number: spec.Number, to: netip.AddrPortFrom(spec.To, gatewayapi.MediaPort),
		out: out, cache: media.NewCache(groupLimits), tasks: tasks.New(), log: log.With("channel", spec.Name), record: record, totals: t,
		epoch: now, spec: spec, onAir: gatewayapi.OnAirWaiting, since: now,
	}
}

// close ends the channel with its producer and its tasks, and waits until they have ended.
func (c *channel) close() {
	c.tasks.Cancel()
	if s := c.publisher(); s != nil {
		s.end("the gateway has the channel no longer")
		<-s.ended
	}
	_ = c.out.Close() // ends a blocked write
	c.tasks.Stop()
}

// feed processes one datagram of the producer.
func (c *channel) feed(b []byte) {
	p, err := media.Parse(b)
	if err != nil || !p.Control && !p.Video() && !p.Audio() {
		c.totals.unexpected.Add(1)
		return
	}
	if p.Control && b[1] != senderReport { // so a producer's goodbye (BYE) does not end the channel
		return
	}
	c.order.Lock()
	defer c.order.Unlock()
	now := time.Now()
	if !c.account(len(b), now, p) {
		return
	}
	c.cache.Add(p, b, now)
	if err := c.out.send(b, c.to); err != nil {
		c.recordSendError(err)
		return
	}
	c.totals.out.Add(uint64(len(b)))
}

// account counts a datagram, and reports whether it is within a quarter above the channel's rate. RTCP
// reports do not make the channel live, because a producer without a picture sends them too.
func (c *channel) account(size int, now time.Time, p media.Packet) bool {
	c.totals.in.Add(uint64(size))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.Control {
		if p.Video() {
			c.heardAt[picture] = now
		} else {
			c.heardAt[sound] = now
		}
		c.receivedAt, c.sourceError = now, ""
		c.setOnAir(gatewayapi.OnAirLive, c.producer)
	}
	most := int64(c.spec.BitRate) + int64(c.spec.BitRate)/4
	if c.sent.add(now.Sub(c.epoch), 8*int64(size+headerBytes), most) {
		return true
	}
	if now.Sub(c.excessAt) > problemTTL {
		c.dropped = 0
	}
	c.dropped++
	c.excessAt = now
	c.totals.excess.Add(1)
	return false
}

// setOnAir sets the channel's state. If that changes, it records an event. c.mu is held.
func (c *channel) setOnAir(state gatewayapi.OnAir, detail string) {
	if c.onAir == state {
		return
	}
	c.onAir, c.since = state, time.Now()
	c.record(gatewayapi.ChannelEvent{At: c.since, Channel: c.name, What: string(state), Detail: detail})
	c.logLimiter.Info(c.log, "channel is "+string(state), "detail", detail)
}

// tick detects that the producer has fallen silent, and asks a WHIP producer for a key frame if
// the last one is old.
func (c *channel) tick(now time.Time) {
	c.mu.Lock()
	live := c.onAir == gatewayapi.OnAirLive
	if quiet := now.Sub(c.receivedAt); live && quiet > silenceTimeout {
		c.setOnAir(gatewayapi.OnAirDown, fmt.Sprintf("nothing has come for %v", silenceTimeout))
	}
	s := c.session
	c.mu.Unlock()
	if s != nil && live && c.stale(now, keyFrameInterval) {
		s.askKeyFrame(now)
	}
}

// stale reports whether the last key frame is older than the given duration.
func (c *channel) stale(now time.Time, than time.Duration) bool {
	age, known := c.cache.Age(now)
	return !known || age >= than
}

// recordSendError records why a datagram was not sent.
func (c *channel) recordSendError(err error) {
	c.totals.unsent.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendError, c.unsentAt = err.Error(), time.Now()
	c.logLimiter.Warn(c.log, "a datagram was not sent", "error", err)
}

// recordSourceError records why the source has ended.
func (c *channel) recordSourceError(err error) {
	c.totals.failures.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sourceError, c.producer = lograte.Shorten(err).(string), ""
	c.logLimiter.Warn(c.log, "the channel's source has ended", "error", err)
}

// recordRefusal records that a producer is refused, and publishes that at a limited rate.
func (c *channel) recordRefusal(from netip.Addr, err error) {
	c.totals.refused.Add(1)
	now := time.Now()
	text := lograte.Shorten(from.String() + ": " + err.Error()).(string)
	c.logLimiter.Warn(c.log, "a producer is refused", "from", from, "error", err)
	if _, turn := c.totals.refusals.Turn(now); turn {
		c.record(gatewayapi.ChannelEvent{At: now, Channel: c.name, What: "refused", Detail: text})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal, c.refusedAt = "a producer is refused: "+text, now
}

// setProducer records the name of the producer.
func (c *channel) setProducer(by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.producer = by
}

// currentSpec returns the specification that the controller has last sent of the channel.
func (c *channel) currentSpec() gatewayapi.Channel {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec
}

// update applies a new specification if it differs only in the password or, without a source, in the
// bit rate, and reports whether it has done that. For other changes the channel must be closed and
// made again.
func (c *channel) update(spec gatewayapi.Channel) bool {
	c.mu.Lock()
	old := c.spec
	same := old
	same.PublishHash = spec.PublishHash
	if old.Source == "" {
		same.BitRate = spec.BitRate
	}
	if same != spec {
		c.mu.Unlock()
		return false
	}
	c.spec = spec
	s := c.session
	c.mu.Unlock()
	if s != nil && old.PublishHash != spec.PublishHash {
		s.end("the channel has another password")
	}
	return true
}

// state returns the report about the channel that the controller gets each second.
func (c *channel) state() gatewayapi.ChannelState {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return gatewayapi.ChannelState{
		Channel: c.spec, OnAir: c.onAir, Since: c.since, Measured: units.Rate(c.sent.second(now.Sub(c.epoch))),
		KeyFrames: units.Duration(c.cache.Interval().Round(time.Millisecond)), Media: c.mediaNow(now), Producer: c.producer, Shown: c.shownNow(), Error: c.problem(now),
	}
}

// problem returns what is wrong with the channel now, or "". c.mu is held.
func (c *channel) problem(now time.Time) string {
	switch {
	case c.onAir != gatewayapi.OnAirLive && c.refusal != "" && now.Sub(c.refusedAt) < refusalTTL:
		return c.refusal
	case c.sourceError != "":
		return c.sourceError
	case c.mediaNow(now) == gatewayapi.MediaSound && c.blind:
		return "the producer sends no picture: viewers see a black one"
	case c.mediaNow(now) == gatewayapi.MediaSound && now.Sub(c.since) > mediumTimeout:
		return fmt.Sprintf("no picture has come for %v, but sound", mediumTimeout)
	case c.dropped > 0 && now.Sub(c.excessAt) < problemTTL:
		return fmt.Sprintf("the producer sends more than a quarter above %v: %d datagrams were dropped", c.spec.BitRate, c.dropped)
	case c.sendError != "" && now.Sub(c.unsentAt) < problemTTL:
		return c.sendError
	}
	return ""
}

// mediaNow returns what the producer sends, or "" if it sends nothing. c.mu is held.
func (c *channel) mediaNow(now time.Time) gatewayapi.Media {
	has := func(m medium) bool { return now.Sub(c.heardAt[m]) < mediumTimeout }
	switch seen, heard := has(picture) && !c.blind, has(sound); {
	case c.onAir != gatewayapi.OnAirLive:
		return ""
	case seen && heard:
		return gatewayapi.MediaBoth
	case seen:
		return gatewayapi.MediaPicture
	case heard:
		return gatewayapi.MediaSound
	}
	return ""
}

// setPicture records which picture viewers get, and whether it is a black one in the place of the
// producer's (blind).
func (c *channel) setPicture(shown string, blind bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown, c.blind = shown, blind
}

// shownNow returns the picture that viewers get of a live producer that is transcoded. c.mu is held.
func (c *channel) shownNow() string {
	if c.onAir != gatewayapi.OnAirLive || c.blind {
		return ""
	}
	return c.shown
}

// startSource starts to read the channel's source with ffmpeg.
func (c *channel) startSource(ffmpeg string, s source) {
	f := &ffmpegSource{ffmpeg: ffmpeg, source: s, ch: c, firstBackoff: minBackoff}
	c.tasks.Start(func(ctx context.Context) { f.run(ctx) })
}
