package host

import (
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/udplink"
)

// probeSizes lists the frame sizes that are probed on the path to a far host, beside the MTU of its
// link: what fits into a UDP datagram on Ethernet, and a smaller size for tunnels and PPPoE.
var probeSizes = []int{1472, 1392}

// probe is a query of the size whose arrival it tests (RFC 8899). It asks about a stream of the
// session that does not exist, and the receiver answers with a reset as it would to any such query.
// Only a host that knows the session's number can forge the answer, and such a host could drop
// frames as well. If the larger frames do not arrive after all, the chunks do not arrive either
// until they are sent in smaller frames.
type probe struct {
	stream frame.Stream
	size   int
}

// padded is a frame that is padded to a size.
type padded struct {
	frame.Frame
	size int
}

// AppendTo implements frame.Frame. Receivers ignore the padding.
func (p padded) AppendTo(b []byte) []byte {
	end := len(b) + p.size
	b = p.Frame.AppendTo(b)
	return append(b, make([]byte, max(end-len(b), 0))...)
}

// payload returns the number of chunk bytes in each frame.
func (p *path) payload() int { return max(p.mtu, minMTU) - frame.StreamDataSize }

// initialMTU returns the frame size with which a path begins. On a link it is the link's MTU. To a
// far host it is the size that every path carries, or a larger size that has been found to arrive
// at the same place, unless the receiver no longer answers there.
func (o *outgoing) initialMTU(p *path) int {
	if !p.link.isFar() {
		return p.link.MTU
	}
	known := min(udplink.MTU, p.link.MTU)
	if old := o.pathTo(p.place); old != nil && old.silences < maxSilences {
		known = max(known, min(old.mtu, p.link.MTU))
	}
	return known
}

// probe sends probes of frames that are larger than the path is known to carry, the largest first.
func (o *outgoing) probe() {
	p := o.path
	p.probes = nil
	if !p.link.isFar() {
		return
	}
	const apart = 1 << 14 // the distance of the probes' numbers from those that the session's streams may get meanwhile
	number := uint64(o.sender.Stream) + apart + rand.Uint64N(2*apart-8)
	for i, size := range append([]int{p.link.MTU}, probeSizes...) {
		if size <= p.mtu || i > 0 && size >= p.link.MTU {
			continue
		}
		number++
		x := probe{frame.NewStream(o.sender.Stream.Session()) | frame.Stream(number&0xffff), size}
		p.probes = append(p.probes, x)
		p.link.sendControl(p.mac, 0, padded{&frame.StreamQuery{Stream: x.stream}, size})
	}
}

// probeSize returns the size of the probe that a reset from a place answers, or zero if it answers
// none.
func (p *path) probeSize(at place, s frame.Stream) int {
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

// raiseMTU records that frames of a size arrive, and restarts the stream with frames of this size.
// If the stream has further paths that do not carry such frames, it does not restart, because a
// stream has one frame size.
func (o *outgoing) raiseMTU(size int, now time.Time) {
	if size <= o.path.mtu {
		return
	}
	o.path.mtu = size
	if payload := o.payload(); payload > o.sender.Payload {
		o.sender.Restart(payload)
		o.proceed(now)
	}
}
