package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/cinema/media"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/units"
)

const (
	// silence is after how long without a datagram a channel is down: with the time until that
	// is seen and told it is within two seconds.
	silence = 1600 * time.Millisecond
	// trouble is for how long what went wrong is told after the last time.
	trouble = 5 * time.Second
	// headers are those of IP and UDP, in bytes: what a link carries of a datagram beside it.
	headers = 28
	// senderReport is the type of the only RTCP packets that viewers need (RFC 3550, 12.1).
	senderReport = 200
)

// kept are the limits of a channel's group of pictures.
var kept = media.Limits{Bytes: 4 << 20, Packets: 8192, Age: 12 * time.Second}

// channel is one that the gateway has.
type channel struct {
	name   string
	number uint16
	to     netip.AddrPort
	out    output
	cache  *media.Cache
	tasks  *tasks.Group // what runs for it
	log    *slog.Logger
	record func(gatewayapi.ChannelEvent)
	totals *totals
	epoch  time.Time
	lines  lograte.Limit
	bursts atomic.Int32 // under way

	order sync.Mutex // keeps datagrams in the order in which they come

	mu       sync.Mutex
	spec     gatewayapi.Channel
	passed   window // bits
	onAir    gatewayapi.OnAir
	since    time.Time
	last     time.Time // the last datagram
	dropped  int       // datagrams in a row of excesses
	excess   time.Time // the last of them
	producer string
	fault    string    // why the producer does not come
	unsent   string    // why the last datagram that was not sent was not
	lost     time.Time // when that was
	session  *session  // who publishes
}

// newChannel returns one that nobody sends to yet.
func newChannel(spec gatewayapi.Channel, out output, log *slog.Logger, record func(gatewayapi.ChannelEvent), t *totals) *channel {
	now := time.Now()
	return &channel{
		name: spec.Name, number: spec.Number, to: netip.AddrPortFrom(spec.To, gatewayapi.MediaPort),
		out: out, cache: media.NewCache(kept), tasks: tasks.New(), log: log.With("channel", spec.Name), record: record, totals: t,
		epoch: now, spec: spec, onAir: gatewayapi.OnAirWaiting, since: now,
	}
}

// close ends all that runs for it.
func (c *channel) close() {
	c.tasks.Cancel()
	if s := c.publisher(); s != nil {
		s.end("the gateway has the channel no longer")
		<-s.ended
	}
	_ = c.out.Close() // ends a write that waits
	c.tasks.Stop()
}

// feed takes one datagram of the producer.
func (c *channel) feed(b []byte) {
	p, err := media.Parse(b)
	if err != nil || !p.Control && !p.Video() && !p.Audio() {
		c.totals.strange.Add(1)
		return
	}
	if p.Control && b[1] != senderReport { // the end of a producer is not that of the channel
		return
	}
	c.order.Lock()
	defer c.order.Unlock()
	now := time.Now()
	if !c.admit(len(b), now, p.Control) {
		return
	}
	c.cache.Add(p, b, now)
	if err := c.out.send(b, c.to); err != nil {
		c.notSent(err)
		return
	}
	c.totals.out.Add(uint64(len(b)))
}

// admit notes that something has come, and says whether it is within what the channel may
// send. Reports are no sign of life: a producer that has nothing to show sends them, too.
func (c *channel) admit(size int, now time.Time, report bool) bool {
	c.totals.in.Add(uint64(size))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !report {
		c.last, c.fault = now, ""
		c.become(gatewayapi.OnAirLive, c.producer)
	}
	most := int64(c.spec.BitRate) + int64(c.spec.BitRate)/4
	if c.passed.add(now.Sub(c.epoch), 8*int64(size+headers), most) {
		return true
	}
	if now.Sub(c.excess) > trouble {
		c.dropped = 0
	}
	c.dropped++
	c.excess = now
	c.totals.excess.Add(1)
	return false
}

// become changes what the channel is, and tells of it if that is new. The caller holds mu.
func (c *channel) become(is gatewayapi.OnAir, detail string) {
	if c.onAir == is {
		return
	}
	c.onAir, c.since = is, time.Now()
	c.record(gatewayapi.ChannelEvent{At: c.since, Channel: c.name, What: string(is), Detail: detail})
	c.lines.Info(c.log, "channel is "+string(is), "detail", detail)
}

// tick finds out that the producer has fallen silent, and asks one that publishes for a key
// frame if the last is old.
func (c *channel) tick(now time.Time) {
	c.mu.Lock()
	live := c.onAir == gatewayapi.OnAirLive
	if quiet := now.Sub(c.last); live && quiet > silence {
		c.become(gatewayapi.OnAirDown, fmt.Sprintf("nothing has come for %v", silence))
	}
	s := c.session
	c.mu.Unlock()
	if s != nil && live && c.stale(now, keyFrameEvery) {
		s.askKeyFrame(now)
	}
}

// stale says whether the last key frame is older than that.
func (c *channel) stale(now time.Time, than time.Duration) bool {
	age, known := c.cache.Age(now)
	return !known || age >= than
}

// notSent notes why a datagram was not sent.
func (c *channel) notSent(err error) {
	c.totals.unsent.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsent, c.lost = err.Error(), time.Now()
	c.lines.Warn(c.log, "a datagram was not sent", "error", err)
}

// failed notes why the producer does not come.
func (c *channel) failed(err error) {
	c.totals.failures.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.producer = lograte.Shorten(err).(string), ""
	c.lines.Warn(c.log, "the channel's source has ended", "error", err)
}

// produced notes who the producer is.
func (c *channel) produced(by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.producer = by
}

// current is what the controller has said of it last.
func (c *channel) current() gatewayapi.Channel {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec
}

// adjust takes what can change without a new producer; false: it is more than that.
func (c *channel) adjust(spec gatewayapi.Channel) bool {
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

// state is what the controller is told each second.
func (c *channel) state() gatewayapi.ChannelState {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return gatewayapi.ChannelState{
		Channel: c.spec, OnAir: c.onAir, Since: c.since, Measured: units.Rate(c.passed.second(now.Sub(c.epoch))),
		KeyFrames: units.Duration(c.cache.Interval().Round(time.Millisecond)), Producer: c.producer, Error: c.wrong(now),
	}
}

// wrong says what is wrong with the channel now. The caller holds mu.
func (c *channel) wrong(now time.Time) string {
	switch {
	case c.fault != "":
		return c.fault
	case c.dropped > 0 && now.Sub(c.excess) < trouble:
		return fmt.Sprintf("the producer sends more than a quarter above %v: %d datagrams were dropped", c.spec.BitRate, c.dropped)
	case c.unsent != "" && now.Sub(c.lost) < trouble:
		return c.unsent
	}
	return ""
}

// play has the channel's source read by a child process.
func (c *channel) play(ffmpeg string, s source) {
	k := &child{ffmpeg: ffmpeg, source: s, ch: c, first: firstPause}
	c.tasks.Start(func(ctx context.Context) { k.run(ctx) })
}
