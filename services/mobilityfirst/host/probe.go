package host

import (
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/udplink"
)

// probed are sizes of frames that are tried on the way to a far host, beside the largest that its own link carries:
// what Ethernet carries in UDP datagrams, and what is left of that where tunnels or PPPoE take some.
var probed = []int{1472, 1392}

// probe is a question that is as large as the frames of which it asks whether they arrive (RFC 8899). It is about a stream of the
// session that is not there, in which the other answers with a reset, as it always has. Who answers knows the session, as does who can keep
// frames from arriving; if it has not come, the chunks do not either, until they are sent in smaller frames.
type probe struct {
	stream frame.Stream
	size   int
}

// padded is a frame that has a size.
type padded struct {
	frame.Frame
	size int
}

// AppendTo implements frame.Frame. What stands behind a frame nobody reads.
func (p padded) AppendTo(b []byte) []byte {
	end := len(b) + p.size
	b = p.Frame.AppendTo(b)
	return append(b, make([]byte, max(end-len(b), 0))...)
}

// payload is how many bytes of chunks frames carry.
func (p *path) payload() int { return max(p.mtu, leastMTU) - frame.StreamDataSize }

// known is how large frames are at first on a way: as large as the link allows, but to a far host as every way does, or as have
// arrived there and still do.
func (o *outgoing) known(p *path) int {
	if !p.link.isFar() {
		return p.link.MTU
	}
	known := min(udplink.MTU, p.link.MTU)
	if old := o.wayTo(p.place); old != nil && old.silent < silences {
		known = max(known, min(old.mtu, p.link.MTU))
	}
	return known
}

// probe asks whether larger frames arrive than are known to, the largest first.
func (o *outgoing) probe() {
	p := o.path
	p.probes = nil
	if !p.link.isFar() {
		return
	}
	const apart = 1 << 14 // from the numbers that the session's streams have meanwhile
	number := uint64(o.sender.Stream) + apart + rand.Uint64N(2*apart-8)
	for i, size := range append([]int{p.link.MTU}, probed...) {
		if size <= p.mtu || i > 0 && size >= p.link.MTU {
			continue
		}
		number++
		x := probe{frame.NewStream(o.sender.Stream.Session()) | frame.Stream(number&0xffff), size}
		p.probes = append(p.probes, x)
		p.link.tell(p.mac, 0, padded{&frame.StreamQuery{Stream: x.stream}, size})
	}
}

// answers is how large a probe was to which something answers that comes from a place; zero for none.
func (p *path) answers(at place, s frame.Stream) int {
	if p == nil || p.place != at {
		return 0
	}
	for _, x := range p.probes {
		if x.stream == s {
			return x.size
		}
	}
	return 0
}

// arrives notes that frames of a size do, and begins the stream anew with these, unless it goes by further ways that do not
// carry them: it has one size for its life.
func (o *outgoing) arrives(size int, now time.Time) {
	if size <= o.path.mtu {
		return
	}
	o.path.mtu = size
	if payload := o.payload(); payload > o.sender.Payload {
		o.sender.Restart(payload)
		o.move(now)
	}
}
