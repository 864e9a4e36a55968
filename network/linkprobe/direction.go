package linkprobe

import (
	"bytes"
	"crypto/rand"
	"slices"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// MaxFrames is the largest number of frames that a Direction sends, which makes 100 for a link.
	MaxFrames = 50
	// retries is the number of these frames that may repeat others which did not arrive.
	retries = 18
	// rounds is the largest number of times that a frame is sent, within the limit of retries.
	rounds = 5
	// maxReceived limits the received frames that are examined.
	maxReceived = 4 * MaxFrames
	// maxOtherPorts limits the other ports that are remembered.
	maxOtherPorts = 8
)

// The MTUs for which links can be probed, in bytes of an IP packet.
const (
	MinMTU     = 576
	DefaultMTU = 1500
	MaxMTU     = 9216
)

// frameSize is a kind of frame and a size.
type frameSize struct {
	kind Kind
	size int
}

// result describes how the frames of one kind and size have arrived. It describes the best of them,
// because a single frame that was lost or damaged is no fault of the link.
type result struct {
	frameSize
	// intactBytes is the number of unchanged bytes from the start of the frame that arrived.
	intactBytes int
	// changedAt is the index of the first byte that differs; 0 if none does.
	changedAt int
	// tagged reports whether the frame arrived with a VLAN tag. vlan is the identifier in the tag.
	tagged bool
	vlan   uint16
}

// intact reports whether a frame arrived unchanged, apart from its tag.
func (r *result) intact() bool {
	return r != nil && r.changedAt == 0 && r.intactBytes == r.untaggedSize()
}

// untaggedSize returns the size without a tag.
func (c frameSize) untaggedSize() int {
	if c.kind == TaggedUDP {
		return c.size - tagSize
	}
	return c.size
}

// sentFrame is a frame that was sent.
type sentFrame struct {
	frameSize
	mark    [markSize]byte
	frame   []byte // without a tag
	arrived bool
}

// Direction is one direction of a link that is examined.
type Direction struct {
	From, To topology.PortRef
	// MTU is the configured MTU of the ends: the largest IP packet, in bytes.
	MTU int
	// MAC is the source address of the frames.
	MAC openflow.MAC

	round         int
	repeated      int
	sent          []sentFrame
	roundStart    int // the index of the present round's first frame
	received      int
	results       []*result
	otherPorts    []topology.PortRef
	sizeSearch    sizeSearch
	arrivedFrames int // how many of the sent frames have arrived
	counters      Counters
}

// NewDirection returns a Direction for a link that should carry IP packets of mtu bytes, which must be from
// MinMTU to MaxMTU.
func NewDirection(from, to topology.PortRef, mtu int) *Direction {
	w := &Direction{From: from, To: to, MTU: mtu}
	copy(w.MAC[:], addressBlock[:])
	_, _ = rand.Read(w.MAC[len(addressBlock):]) // never fails, see package crypto/rand
	return w
}

// maxSize returns the size of the largest frame that the link should carry.
func (w *Direction) maxSize() int { return ethHeader + w.MTU }

// oversize returns the size of a frame that is too large, even with room for tags.
func (w *Direction) oversize() int { return w.maxSize() + 2*tagSize }

// Next returns the frames of the next round. It returns none when the examination has ended.
func (w *Direction) Next() [][]byte {
	w.round++
	switch {
	case w.round == 1:
		return w.frames(w.firstRound())
	case w.round <= rounds:
		if again := w.retryKinds(); len(again) > 0 {
			return w.frames(again)
		}
		w.round = rounds + 1
	}
	return w.frames(w.sizeSearch.next(w))
}

// firstRound returns the frames that are sent once each.
func (w *Direction) firstRound() []frameSize {
	all := []frameSize{{LLDP, smallest}, {ARP, smallest}}
	for k := ICMP; k <= TCPDF; k++ {
		all = append(all, frameSize{k, smallest}, frameSize{k, w.maxSize()})
	}
	return append(all, frameSize{TaggedUDP, smallest + tagSize}, frameSize{TaggedUDP, w.maxSize() + tagSize}, frameSize{UDPDF, w.oversize()})
}

// retryKinds returns the kinds and sizes of the frames that are sent again because they have not
// arrived. Smaller frames come first, because larger ones are useless if these do not arrive.
func (w *Direction) retryKinds() []frameSize {
	var again []frameSize
	for _, c := range w.firstRound() {
		if w.result(c) == nil && c.size != w.oversize() {
			again = append(again, c)
		}
	}
	slices.SortStableFunc(again, func(a, b frameSize) int { return a.size - b.size })
	again = again[:min(len(again), retries-w.repeated)]
	w.repeated += len(again)
	return again
}

// frames builds a frame of each kind and size, as long as the Direction may send more.
func (w *Direction) frames(cells []frameSize) [][]byte {
	var out [][]byte
	w.roundStart = len(w.sent)
	for _, c := range cells[:min(len(cells), MaxFrames-len(w.sent))] {
		s := sentFrame{frameSize: c}
		_, _ = rand.Read(s.mark[:]) // never fails, see package crypto/rand
		frame := build(c.kind, c.size, w.MAC, s.mark)
		s.frame = untagged(frame)
		w.sent = append(w.sent, s)
		out = append(out, frame)
	}
	return out
}

// Sent returns the number of frames that Next has returned so far.
func (w *Direction) Sent() int { return len(w.sent) }

// Waiting reports whether a frame of the present round that should arrive has not yet arrived.
func (w *Direction) Waiting() bool {
	return slices.ContainsFunc(w.sent[w.roundStart:], func(s sentFrame) bool {
		return s.size != w.oversize() && w.result(s.frameSize) == nil
	})
}

// Receive handles a frame with the Direction's source address that arrived at a port. It ignores
// frames that are not recognised as the Direction's.
func (w *Direction) Receive(at topology.PortRef, frame []byte) {
	if w.received++; w.received > maxReceived {
		return
	}
	if at != w.To {
		if !slices.Contains(w.otherPorts, at) && len(w.otherPorts) < maxOtherPorts {
			w.otherPorts = append(w.otherPorts, at)
		}
		return
	}
	vlan, tagged := tag(frame)
	body := untagged(frame)
	for i := range w.sent {
		s := &w.sent[i]
		if m := markAt[s.kind]; s.arrived || len(body) < m+markSize || !bytes.Equal(body[m:m+markSize], s.mark[:]) {
			continue
		}
		s.arrived = true
		w.arrivedFrames++
		length, changed := compare(s.frame, body)
		w.record(result{frameSize: s.frameSize, intactBytes: length, changedAt: changed, tagged: tagged, vlan: vlan})
		return
	}
}

// compare returns how many bytes of the sent frame have arrived unchanged, and the index of the
// first byte that differs, or at which additional bytes begin; 0 if there is none. Zeros after
// the frame are the padding of small frames.
func compare(sent, got []byte) (length, changed int) {
	length = min(len(sent), len(got))
	for i := range length {
		if sent[i] != got[i] {
			return length, i
		}
	}
	if rest := got[length:]; len(bytes.Trim(rest, "\x00")) > 0 {
		return length, length
	}
	return length, 0
}

func (w *Direction) result(c frameSize) *result {
	for _, r := range w.results {
		if r.frameSize == c {
			return r
		}
	}
	return nil
}

// record records the result of a frame, unless a frame of the same kind and size has arrived intact.
func (w *Direction) record(r result) {
	old := w.result(r.frameSize)
	switch {
	case old == nil:
		w.results = append(w.results, &r)
	case !old.intact():
		*old = r
	}
}

// arrived reports whether any frame has arrived.
func (w *Direction) arrived() bool { return len(w.results) > 0 }
