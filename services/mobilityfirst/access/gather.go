package access

import (
	"bytes"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// maxGathers is how many chunks of one host may come at one time.
	maxGathers = 16
	// gatherFor is how long after something new of it has come a chunk is given up that is not whole.
	gatherFor = 5 * time.Second
	// maxWire is how many bytes the DATA frames of a chunk have at most: the largest with all headers.
	maxWire = hostapi.MaxChunk + 1<<16 + transportSize
	// partCharge is what each DATA frame of a chunk counts that is coming, of memory; and partsOfCSYN are those for which a
	// chunk that begins counts one CSYN more: there is a table of them to be made.
	partCharge, partsOfCSYN = 32, 64
	// A host's hop IDs of maxFinished chunks are remembered, for finishedFor: a CSYN with one asks once more for an
	// acknowledgement that was lost.
	maxFinished, finishedFor = 256, 30 * time.Second
)

// gather is a chunk that a host has announced, as far as it has come.
type gather struct {
	packets, missing uint32
	got              frame.Bitmap
	parts            [][]byte
	bytes            int // of these
	most             int // of these
	charge           int
	letter           *letter   // what it says, once it is whole
	last             time.Time // when something new has come
}

// announced takes a CSYN, and gives the CACK: none if there is no room, so that the host tries again. Router.mu is held.
func (g *guest) announced(c *frame.CSYN, mtu int, now time.Time) frame.Frame {
	counters := &g.router.counters
	switch {
	case !g.csyns.AllowN(now, 1):
		counters.Excess++
		return nil
	case c.Packets == 0 || int64(c.Packets) > int64(mostPackets(mtu)):
		counters.Malformed++
		return nil
	case g.finished.has(c, now):
		return allOf(c)
	}
	x := g.gathers[c.Hop]
	if x != nil && x.packets != c.Packets { // it is another chunk
		g.drop(c.Hop)
		x = nil
	}
	if x == nil {
		if x = g.begin(c, mtu, now); x == nil {
			counters.NoRoom++
			return nil
		}
	}
	if x.missing == 0 {
		return g.finish(c, x, now)
	}
	return &frame.CACK{Hop: c.Hop, Packets: c.Packets, Received: x.got}
}

// mostPackets is how many DATA frames a chunk may have whose CACK an interface carries.
func mostPackets(mtu int) int { return (mtu-cackOverhead)*8 + 7 }

// allOf is the CACK which says that all of a chunk has come.
func allOf(c *frame.CSYN) *frame.CACK {
	return &frame.CACK{Hop: c.Hop, Packets: c.Packets, Received: bytes.Repeat([]byte{0xff}, int(c.Packets/8)+1)}
}

// begin makes room for a chunk; nil if there is none. Router.mu is held.
func (g *guest) begin(c *frame.CSYN, mtu int, now time.Time) *gather {
	most := min(int(c.Packets)*(mtu-dataOverhead), maxWire)
	charge := most + int(c.Packets)*partCharge
	if g.ending || len(g.gathers) == maxGathers || g.held+charge > g.router.Memory || !g.csyns.AllowN(now, int(c.Packets/partsOfCSYN)) {
		return nil
	}
	x := &gather{packets: c.Packets, missing: c.Packets, got: frame.NewBitmap(c.Packets), parts: make([][]byte, c.Packets), most: most, charge: charge, last: now}
	g.gathers[c.Hop] = x
	g.held += charge
	return x
}

// drop gives up what has come of a chunk. Router.mu is held.
func (g *guest) drop(hop uint32) {
	g.held -= g.gathers[hop].charge
	delete(g.gathers, hop)
}

// came takes a part of a chunk. The CACK comes by itself when that is whole, and else when it is asked for. Router.mu is held.
func (g *guest) came(d *frame.Data, now time.Time) frame.Frame {
	x := g.gathers[d.Hop]
	if x == nil || d.Sequence >= x.packets || x.got.Has(d.Sequence) {
		return nil // it comes late, or once more
	}
	x.parts[d.Sequence] = bytes.Clone(d.Payload)
	x.bytes += len(d.Payload)
	c := &frame.CSYN{Hop: d.Hop, Packets: x.packets}
	if x.bytes > x.most {
		return g.invalid(c, fmt.Errorf("more than %d bytes: %w", x.most, errInvalid), now)
	}
	x.got.Set(d.Sequence)
	x.missing--
	x.last = now
	if x.missing > 0 {
		return nil
	}
	l, err := g.read(bytes.Join(x.parts, nil))
	if err != nil {
		return g.invalid(c, err, now)
	}
	x.letter, x.parts = &l, nil
	return g.finish(c, x, now)
}

// finish takes a chunk that is whole into custody, and gives the CACK which says so; none if there is no room. Router.mu is
// held.
func (g *guest) finish(c *frame.CSYN, x *gather, now time.Time) frame.Frame {
	if !g.accept(x, now) {
		g.router.counters.NoRoom++
		return nil
	}
	return g.over(c, now)
}

// invalid ends a chunk that cannot be sent, as if it was: the host would else send it for ever. Router.mu is held.
func (g *guest) invalid(c *frame.CSYN, why error, now time.Time) frame.Frame {
	r := g.router
	r.counters.Invalid++
	r.strange.Warn(r.Log, "a chunk ends here", "guid", g.GUID, "error", why)
	return g.over(c, now)
}

// over forgets what has come of a chunk but for its hop ID, and gives the CACK with all bits. Router.mu is held.
func (g *guest) over(c *frame.CSYN, now time.Time) frame.Frame {
	g.drop(c.Hop)
	g.finished.add(c, now)
	return allOf(c)
}

// finished are the last chunks that a host has handed over.
type finished struct {
	of    map[uint32]ended // by hop ID
	order []uint32
}

type ended struct {
	packets uint32
	at      time.Time
}

// has says whether a CSYN is for one of them.
func (f *finished) has(c *frame.CSYN, now time.Time) bool {
	e, is := f.of[c.Hop]
	return is && e.packets == c.Packets && now.Sub(e.at) < finishedFor
}

// add notes one, in place of the oldest if there are too many.
func (f *finished) add(c *frame.CSYN, now time.Time) {
	if f.of == nil {
		f.of = map[uint32]ended{}
	}
	if _, is := f.of[c.Hop]; !is {
		if f.order = append(f.order, c.Hop); len(f.order) > maxFinished {
			delete(f.of, f.order[0])
			f.order = f.order[1:]
		}
	}
	f.of[c.Hop] = ended{c.Packets, now}
}
