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
	// maxTransfers is how many chunks are sent to one host at one time.
	maxTransfers = 8
	// burst is how many bytes of DATA frames are sent before the host is asked which have come, at least leastBurst frames: larger
	// bursts are lost where switches and hosts have little memory.
	burst, leastBurst = 96 << 10, 8
	// A CSYN that is not answered is repeated after announceAgain, and then after twice as long up to announceMost.
	announceAgain, announceMost = 50 * time.Millisecond, time.Second
	// giveUpAfter is how long after nothing new has come there a chunk is left with its sender.
	giveUpAfter = 15 * time.Second
	// maxAnew is how often a host may begin anew within a chunk, and be sent all of it again: one that does so without end would
	// else never be given up.
	maxAnew = 3
)

var (
	// errSilent is for a host that does not acknowledge a chunk.
	errSilent = errors.New("the host does not acknowledge it")
	// errTooLarge is for a chunk whose CACK no frame of the interface carries.
	errTooLarge = errors.New("it has too many frames for the interface")
)

// transfer is a chunk that is being sent to a host.
type transfer struct {
	guest   *guest
	hop     uint32
	size    int // of what a DATA frame carries
	packets uint32
	header  []byte
	payload []byte
	cacks   chan frame.Bitmap // the latest

	got     frame.Bitmap // what the host has said last that has come, nil if it has said nothing
	has     uint32       // how many these are
	most    uint32       // how many these were at most since the host has begun
	anew    int          // how often it has begun since the chunk was announced
	asked   bool         // it was asked once more since frames were sent
	buffers [][]byte

	association uint64 // the guest's when it has begun last
}

// deliver sends the host a chunk, and waits until all of it is acknowledged. It fails if it is not, or ctx ends.
func (g *guest) deliver(ctx context.Context, x hostapi.Chunk, number uint32) error {
	t, err := g.begun(x, number)
	if err != nil {
		return err
	}
	defer g.ended(t)
	if err := t.announce(false); err != nil {
		return err
	}
	pause, news := announceAgain, time.Now()
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		more := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case got := <-t.cacks:
			if t.hear(got, g.association.Load()) {
				news, pause = time.Now(), announceAgain
			} else if !t.asked {
				continue // it has been answered twice
			}
			if t.has == t.packets {
				return nil
			}
			more = true
		case <-again.C:
			pause = min(2*pause, announceMost)
		}
		if time.Since(news) > giveUpAfter {
			return fmt.Errorf("%d of %d frames, nothing new for %v: %w", t.has, t.packets, giveUpAfter, errSilent)
		}
		if err := t.announce(more); err != nil {
			return err
		}
		again.Reset(pause)
	}
}

// begun is a chunk that is to be sent, with a hop ID of its own.
func (g *guest) begun(x hostapi.Chunk, number uint32) (*transfer, error) {
	r := g.router
	at, there := g.place()
	if !there {
		return nil, errSilent
	}
	i := at.link.interfaceNow()
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
	if packets > mostPackets(i.MTU) {
		return nil, fmt.Errorf("chunk of %d bytes, %d frames, at most %d: %w", len(x.Payload), packets, mostPackets(i.MTU), errTooLarge)
	}
	t.packets = uint32(packets)
	if t.header, err = g.write(x, number, t.packets, g.version); err != nil {
		return nil, err
	}
	g.sending[t.hop] = t
	return t, nil
}

// ended forgets it.
func (g *guest) ended(t *transfer) {
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	delete(g.sending, t.hop)
}

// acknowledged hears what of a chunk has come. Router.mu is held.
func (g *guest) acknowledged(c *frame.CACK, now time.Time) {
	if !g.cacks.AllowN(now, 1) {
		g.router.counters.Excess++
		return
	}
	t := g.sending[c.Hop]
	if t == nil || t.packets != c.Packets {
		return // it comes late
	}
	select {
	case <-t.cacks: // an older one
	default:
	}
	t.cacks <- bytes.Clone(c.Received)
}

// hear notes what has come, and says whether it is more than ever: a host whose CACKs go back and forth would else be sent bursts
// without end. The latest CACK holds, since a host that has begun anew has nothing of the chunk any more; such a host, which has
// associated, has more than ever when it has more than then.
func (t *transfer) hear(got frame.Bitmap, association uint64) (news bool) {
	has := uint32(0)
	for i := range t.packets {
		if got.Has(i) {
			has++
		}
	}
	if has < t.most && association != t.association && t.anew < maxAnew {
		t.most, t.association = has, association
		t.anew++
	}
	news = t.got == nil || has > t.most
	t.got, t.has, t.most = got, has, max(has, t.most)
	return news
}

// announce asks the host which frames have come, behind more of those that are missing.
func (t *transfer) announce(more bool) error {
	at, there := t.guest.place()
	if !there {
		return errSilent
	}
	i := at.link.interfaceNow()
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

// missing are the next frames that have not come.
func (t *transfer) missing(i *host.Interface, at place) (frames [][]byte) {
	most := max(burst/(t.size+dataOverhead), leastBurst)
	for n := uint32(0); n < t.packets && len(frames) < most; n++ {
		if t.got.Has(n) {
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

// part is what a DATA frame carries. The headers are in the first.
func (t *transfer) part(n int) []byte {
	from, to := n*t.size-len(t.header), (n+1)*t.size-len(t.header)
	to = min(to, len(t.payload))
	if n == 0 {
		return append(bytes.Clone(t.header), t.payload[:to]...)
	}
	return t.payload[from:to]
}
