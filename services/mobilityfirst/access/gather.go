package access

import (
	"bytes"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// maxReassemblies limits the chunks of one host that are received at one time.
	maxReassemblies = 16
	// reassemblyTimeout is the time without progress after which an incomplete chunk is given up.
	reassemblyTimeout = 5 * time.Second
	// maxEncoded is the maximum size in bytes of a chunk in DATA frames: the largest chunk with all
	// headers.
	maxEncoded = hostapi.MaxChunk + 1<<16 + transportSize
	// frameCharge is the memory in bytes that is charged for each DATA frame of an incomplete
	// chunk. A new chunk counts as one further CSYN for each framesPerCSYN of its frames, because a
	// table of the frames is allocated.
	frameCharge, framesPerCSYN = 32, 64
	// The hop IDs of the last maxFinished chunks of a host are remembered for finishedLifetime: a
	// further CSYN with one of them asks for a lost acknowledgement.
	maxFinished, finishedLifetime = 256, 30 * time.Second
)

// reassembly is a chunk that a host has announced, as far as it has been received.
type reassembly struct {
	packets, missing uint32
	received         frame.Bitmap
	parts            [][]byte
	bytes            int // the size of parts
	maxBytes         int // the maximum of bytes
	charge           int
	message          *message  // the parsed chunk once it is complete
	last             time.Time // when a new part was last received
}

// handleCSYN handles a CSYN and returns the CACK; nil if there is no room, so that the host tries
// again. Router.mu is held.
func (g *guest) handleCSYN(c *frame.CSYN, mtu int, now time.Time) frame.Frame {
	counters := &g.router.counters
	switch {
	case !g.csyns.AllowN(now, 1):
		counters.Excess++
		return nil
	case c.Packets == 0 || int64(c.Packets) > int64(maxPackets(mtu)):
		counters.Malformed++
		return nil
	case g.finished.contains(c, now):
		return fullCACK(c)
	}
	x := g.reassemblies[c.Hop]
	if x != nil && x.packets != c.Packets { // it is another chunk
		g.drop(c.Hop)
		x = nil
	}
	if x == nil {
		if x = g.startReassembly(c, mtu, now); x == nil {
			counters.NoRoom++
			return nil
		}
	}
	if x.missing == 0 {
		return g.finish(c, x, now)
	}
	return &frame.CACK{Hop: c.Hop, Packets: c.Packets, Received: x.received}
}

// maxPackets returns the maximum number of DATA frames of a chunk whose CACK fits into a frame of
// the interface.
func maxPackets(mtu int) int { return (mtu-cackOverhead)*8 + 7 }

// fullCACK returns the CACK that acknowledges all frames of a chunk.
func fullCACK(c *frame.CSYN) *frame.CACK {
	return &frame.CACK{Hop: c.Hop, Packets: c.Packets, Received: bytes.Repeat([]byte{0xff}, int(c.Packets/8)+1)}
}

// startReassembly allocates the state for a chunk; it returns nil if there is no room. Router.mu is
// held.
func (g *guest) startReassembly(c *frame.CSYN, mtu int, now time.Time) *reassembly {
	maxBytes := min(int(c.Packets)*(mtu-dataOverhead), maxEncoded)
	charge := maxBytes + int(c.Packets)*frameCharge
	if g.ending || len(g.reassemblies) == maxReassemblies || g.heldBytes+charge > g.router.Memory || !g.csyns.AllowN(now, int(c.Packets/framesPerCSYN)) {
		return nil
	}
	x := &reassembly{packets: c.Packets, missing: c.Packets, received: frame.NewBitmap(c.Packets), parts: make([][]byte, c.Packets), maxBytes: maxBytes, charge: charge, last: now}
	g.reassemblies[c.Hop] = x
	g.heldBytes += charge
	return x
}

// drop removes an incomplete chunk. Router.mu is held.
func (g *guest) drop(hop uint32) {
	g.heldBytes -= g.reassemblies[hop].charge
	delete(g.reassemblies, hop)
}

// handleData handles a part of a chunk. It returns a CACK if the part completes the chunk;
// otherwise the host asks for a CACK with its next CSYN. Router.mu is held.
func (g *guest) handleData(d *frame.Data, now time.Time) frame.Frame {
	x := g.reassemblies[d.Hop]
	if x == nil || d.Sequence >= x.packets || x.received.Has(d.Sequence) {
		return nil // late, or a duplicate
	}
	x.parts[d.Sequence] = bytes.Clone(d.Payload)
	x.bytes += len(d.Payload)
	c := &frame.CSYN{Hop: d.Hop, Packets: x.packets}
	if x.bytes > x.maxBytes {
		return g.invalid(c, fmt.Errorf("more than %d bytes: %w", x.maxBytes, errInvalid), now)
	}
	x.received.Set(d.Sequence)
	x.missing--
	x.last = now
	if x.missing > 0 {
		return nil
	}
	l, err := g.read(bytes.Join(x.parts, nil))
	if err != nil {
		return g.invalid(c, err, now)
	}
	x.message, x.parts = &l, nil
	return g.finish(c, x, now)
}

// finish takes over a complete chunk and returns the CACK, or nil if there is no room. Router.mu is
// held.
func (g *guest) finish(c *frame.CSYN, x *reassembly, now time.Time) frame.Frame {
	if !g.accept(x, now) {
		g.router.counters.NoRoom++
		return nil
	}
	return g.complete(c, now)
}

// invalid acknowledges a chunk that cannot be sent and discards it, because the host would
// otherwise repeat it forever. Router.mu is held.
func (g *guest) invalid(c *frame.CSYN, reason error, now time.Time) frame.Frame {
	r := g.router
	r.counters.Invalid++
	r.warnLimit.Warn(r.Log, "a chunk ends here", "guid", g.GUID, "error", reason)
	return g.complete(c, now)
}

// complete removes the state of a chunk except for its hop ID, and returns the CACK with all bits
// set. Router.mu is held.
func (g *guest) complete(c *frame.CSYN, now time.Time) frame.Frame {
	g.drop(c.Hop)
	g.finished.add(c, now)
	return fullCACK(c)
}

// finishedChunks remembers the last chunks of a host that were acknowledged.
type finishedChunks struct {
	byHop map[uint32]finishedChunk // by hop ID
	order []uint32
}

type finishedChunk struct {
	packets uint32
	at      time.Time
}

// contains reports whether a CSYN belongs to one of the finished chunks.
func (f *finishedChunks) contains(c *frame.CSYN, now time.Time) bool {
	e, ok := f.byHop[c.Hop]
	return ok && e.packets == c.Packets && now.Sub(e.at) < finishedLifetime
}

// add adds a chunk, and removes the oldest if there are too many.
func (f *finishedChunks) add(c *frame.CSYN, now time.Time) {
	if f.byHop == nil {
		f.byHop = map[uint32]finishedChunk{}
	}
	if _, ok := f.byHop[c.Hop]; !ok {
		if f.order = append(f.order, c.Hop); len(f.order) > maxFinished {
			delete(f.byHop, f.order[0])
			f.order = f.order[1:]
		}
	}
	f.byHop[c.Hop] = finishedChunk{c.Packets, now}
}
