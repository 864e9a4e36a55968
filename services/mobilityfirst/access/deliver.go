package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// maxTransfers limits the chunks that are sent to one host at one time.
	maxTransfers = 8
	// burstBytes is the number of bytes of DATA frames, at least minBurst frames, that are sent
	// before the host is asked which have arrived. Larger bursts are lost where switches and hosts
	// have little memory.
	burstBytes, minBurst = 96 << 10, 8
	// An unanswered CSYN is repeated after initialAnnounce, doubled each time up to maxAnnounce.
	initialAnnounce, maxAnnounce = 50 * time.Millisecond, time.Second
	// deliveryTimeout is the time without progress after which the router gives a chunk up. The
	// chunk then stays with its sender.
	deliveryTimeout = 15 * time.Second
	// maxRestarts is how often a host may restart while one chunk is being sent to it. After each
	// restart the chunk is sent again from the beginning. Without a limit, a host that always
	// restarts would never be given up.
	maxRestarts = 3
)

var (
	// errSilent means that a host does not acknowledge a chunk.
	errSilent = errors.New("the host does not acknowledge it")
	// errTooLarge means that the CACK of a chunk does not fit into a frame of the interface.
	errTooLarge = errors.New("it has too many frames for the interface")
)

// transfer is a chunk that is being sent to a host.
type transfer struct {
	guest   *guest
	hop     uint32
	size    int // the payload size of DATA frames
	packets uint32
	header  []byte
	payload []byte
	cacks   chan frame.Bitmap // the latest CACK that has not been handled

	received frame.Bitmap // the frames that the host has last reported as received; nil before its first report
	count    uint32       // the number of frames in received
	maxCount uint32       // the maximum of count since the host's last restart
	restarts int          // the host's restarts since the chunk was announced
	asked    bool         // a CSYN was sent without DATA frames
	buffers  [][]byte

	association uint64 // the guest's association at its last restart
}

// deliver sends a chunk to the host, and waits until all of it is acknowledged. It returns an error
// if that fails or ctx ends.
func (g *guest) deliver(ctx context.Context, x hostapi.Chunk, number uint32) error {
	t, err := g.startTransfer(x, number)
	if err != nil {
		return err
	}
	defer g.endTransfer(t)
	if err := t.announce(false); err != nil {
		return err
	}
	pause, news := initialAnnounce, time.Now()
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		more := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case got := <-t.cacks:
			if t.update(got, g.association.Load()) {
				news, pause = time.Now(), initialAnnounce
			} else if !t.asked {
				continue // the answer is a duplicate
			}
			if t.count == t.packets {
				return nil
			}
			more = true
		case <-again.C:
			pause = min(2*pause, maxAnnounce)
		}
		if time.Since(news) > deliveryTimeout {
			return fmt.Errorf("%d of %d frames, nothing new for %v: %w", t.count, t.packets, deliveryTimeout, errSilent)
		}
		if err := t.announce(more); err != nil {
			return err
		}
		again.Reset(pause)
	}
}

// startTransfer registers a chunk to send, with a new hop ID.
func (g *guest) startTransfer(x hostapi.Chunk, number uint32) (*transfer, error) {
	r := g.router
	at, there := g.place()
	if !there {
		return nil, errSilent
	}
	i := at.link.iface()
	if i == nil {
		return nil, fmt.Errorf("%s: %w", at.link.name, errDown)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &transfer{
		guest: g, hop: r.hops.Add(1), size: i.MTU - dataOverhead, payload: x.Payload, cacks: make(chan frame.Bitmap, 1), association: g.association.Load(),
	}
	header, err := g.write(x, number, 0, g.version)
	if err != nil {
		return nil, err
	}
	packets := (len(header) + len(x.Payload) + t.size - 1) / t.size
	if packets > maxPackets(i.MTU) {
		return nil, fmt.Errorf("chunk of %d bytes, %d frames, at most %d: %w", len(x.Payload), packets, maxPackets(i.MTU), errTooLarge)
	}
	t.packets = uint32(packets)
	if t.header, err = g.write(x, number, t.packets, g.version); err != nil {
		return nil, err
	}
	g.sending[t.hop] = t
	return t, nil
}

// endTransfer removes a transfer.
func (g *guest) endTransfer(t *transfer) {
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	delete(g.sending, t.hop)
}

// handleCACK handles a CACK for a chunk that is being sent. Router.mu is held.
func (g *guest) handleCACK(c *frame.CACK, now time.Time) {
	if !g.cacks.AllowN(now, 1) {
		g.router.counters.Excess++
		return
	}
	t := g.sending[c.Hop]
	if t == nil || t.packets != c.Packets {
		return // the CACK is late
	}
	select {
	case <-t.cacks: // removes an older one
	default:
	}
	t.cacks <- bytes.Clone(c.Received)
}

// update records which frames the host has received. It reports whether this is the first report,
// or their number exceeds the maximum so far: otherwise a host whose CACKs alternate would be sent
// bursts forever. The latest CACK replaces the earlier ones, because a host that has restarted has
// lost the chunk. For a host that has restarted, and so has associated again, the maximum starts
// again.
func (t *transfer) update(got frame.Bitmap, association uint64) (news bool) {
	count := uint32(0)
	for i := range t.packets {
		if got.Has(i) {
			count++
		}
	}
	if count < t.maxCount && association != t.association && t.restarts < maxRestarts {
		t.maxCount, t.association = count, association
		t.restarts++
	}
	news = t.received == nil || count > t.maxCount
	t.received, t.count, t.maxCount = got, count, max(count, t.maxCount)
	return news
}

// announce sends a CSYN to ask the host which frames it has received. If more is set it first sends
// missing frames.
func (t *transfer) announce(more bool) error {
	at, there := t.guest.place()
	if !there {
		return errSilent
	}
	i := at.link.iface()
	if i == nil {
		return errDown
	}
	var frames [][]byte
	if more {
		frames = t.missing(i, at)
	}
	t.asked = !more
	csyn := frame.CSYN{Hop: t.hop, Packets: t.packets}
	return at.link.send(append(frames, csyn.AppendTo(i.AppendHeader(nil, at.mac, 0))))
}

// missing returns the next frames that the host has not received.
func (t *transfer) missing(i *host.Interface, at place) (frames [][]byte) {
	most := max(burstBytes/(t.size+dataOverhead), minBurst)
	for n := uint32(0); n < t.packets && len(frames) < most; n++ {
		if t.received.Has(n) {
			continue
		}
		if len(frames) == len(t.buffers) {
			t.buffers = append(t.buffers, nil)
		}
		b := &t.buffers[len(frames)]
		d := frame.Data{Sequence: n, Hop: t.hop, Payload: t.part(int(n))}
		*b = d.AppendTo(i.AppendHeader((*b)[:0], at.mac, 0))
		frames = append(frames, *b)
	}
	return frames
}

// part returns the payload of a DATA frame. The first contains the headers.
func (t *transfer) part(n int) []byte {
	from, to := n*t.size-len(t.header), (n+1)*t.size-len(t.header)
	to = min(to, len(t.payload))
	if n == 0 {
		return append(bytes.Clone(t.header), t.payload[:to]...)
	}
	return t.payload[from:to]
}
