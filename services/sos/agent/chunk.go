package agent

import (
	"errors"
	"sync"

	"github.com/sluice-net/sluice/services/sos/wire"
)

// chunk is a piece of the data of one direction, at the sending agent. It exists from when it is
// read from the end host until the peer has confirmed it.
type chunk struct {
	seq   uint64
	size  int
	flags wire.Flags

	out  *pipe  // the payload to send; nil while the payload is only retained
	kept *pipe  // the same payload, retained until it is confirmed
	mem  []byte // the payload, instead of the pipes, in copy mode or if pipes are small
}

// header returns the header that announces the chunk.
func (c *chunk) header() wire.Header {
	return wire.Header{Kind: wire.Data, Flags: c.flags, Length: uint32(c.size), Number: c.seq}
}

// buffers provides memory for copy mode, in which payload passes through user space.
type buffers struct {
	size int
	pool sync.Pool
}

func newBuffers(size int) *buffers {
	b := &buffers{size: size}
	b.pool.New = func() any {
		m := make([]byte, size)
		return &m
	}
	return b
}

// get returns memory for at least n bytes. n may exceed the size, because a peer may send larger
// chunks than this agent does.
func (b *buffers) get(n int) []byte {
	if n > b.size {
		return make([]byte, n)
	}
	return *b.pool.Get().(*[]byte)
}

func (b *buffers) put(m []byte) {
	if len(m) == b.size {
		b.pool.Put(&m)
	}
}

// release returns the pipes and the memory of the chunk to their pools.
func (c *chunk) release(pipes *pipePool, mem *buffers) {
	if c.out != nil {
		pipes.put(c.out)
	}
	if c.kept != nil {
		pipes.put(c.kept)
	}
	if c.mem != nil && mem != nil {
		mem.put(c.mem)
	}
	c.out, c.kept, c.mem = nil, nil, nil
}

// keep copies the payload of c.out to c.kept, so that it can be sent again, and clears
// c.out: the caller then owns that pipe. If the kernel no longer gives this user pipes of
// that size, keep moves the payload to c.mem instead.
func (c *chunk) keep(pipes *pipePool) error {
	kept, err := pipes.get()
	if err != nil {
		return err
	}
	if err = c.out.copyTo(kept, c.size); err == nil {
		c.out, c.kept = nil, kept
		return nil
	}
	pipes.put(kept)
	if !errors.Is(err, errSmallPipe) {
		return err
	}
	m, err := c.out.load(c.size)
	if err != nil {
		return err
	}
	c.out, c.mem = nil, m
	return nil
}

// lost prepares a chunk whose connection was lost for being sent on another connection.
func (c *chunk) lost(pipes *pipePool) {
	if c.kept == nil {
		return // the chunk was never started, or its payload is in memory
	}
	if c.out != nil {
		pipes.put(c.out)
	}
	c.out, c.kept = c.kept, nil
}

// segmentPayload estimates the mean payload of a connection's latest segments. A segment is not
// always full: between chunks there are frames of a few bytes, and a connection without chunks
// sends only such frames.
type segmentPayload struct{ segments, bytes float64 }

// payloadDecay is the weight that earlier values keep at each update.
const payloadDecay = 0.8

// record adds the segments and bytes that were sent between two readings.
func (p *segmentPayload) record(before, now *ConnStats) {
	p.segments = payloadDecay*p.segments + float64(now.DataSent-before.DataSent)
	p.bytes = payloadDecay*p.bytes + float64(now.BytesSent-before.BytesSent)
}

// average returns the mean payload of a segment in bytes. full is the payload of a full segment.
func (p *segmentPayload) average(full int) float64 {
	if p.segments < 1 {
		return float64(full)
	}
	return min(p.bytes/p.segments, float64(full))
}
