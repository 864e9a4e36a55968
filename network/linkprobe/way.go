package linkprobe

import (
	"bytes"
	"crypto/rand"
	"slices"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// MaxFrames is how many frames a way sends at most: 100 a link.
	MaxFrames = 50
	// retries is how many of them repeat what did not arrive.
	retries = 18
	// rounds is how often what does not arrive is sent in all, if retries suffice.
	rounds = 5
	// maxReceived is how many frames are looked at that claim to be a way's.
	maxReceived = 4 * MaxFrames
	// maxElsewhere is how many other places are remembered where its frames came out.
	maxElsewhere = 8
)

// The MTUs that links can be probed for, in bytes of an IP packet.
const (
	MinMTU     = 576
	DefaultMTU = 1500
	MaxMTU     = 9216
)

// cell is a kind and size of frames.
type cell struct {
	kind Kind
	size int
}

// result is what has arrived of the frames of a cell. The best counts: that of several
// frames one is lost is no fault of the link.
type result struct {
	cell
	// length is how many bytes of the longest that arrived are as they were sent.
	length int
	// changed is where the first byte differs; 0 if none does.
	changed int
	// tagged says that it arrived with a tag, vlan with which.
	tagged bool
	vlan   uint16
}

// whole says that a frame arrived as it was sent, whatever its tag.
func (r *result) whole() bool {
	return r != nil && r.changed == 0 && r.length == r.bare()
}

// bare is the size without a tag.
func (c cell) bare() int {
	if c.kind == TaggedUDP {
		return c.size - tagSize
	}
	return c.size
}

// sent is a frame under way.
type sent struct {
	cell
	mark  [markSize]byte
	frame []byte // without a tag
	done  bool
}

// Way is one direction of a link under examination.
type Way struct {
	From, To topology.PortRef
	// MTU is what the ends say: the largest IP packet, in bytes.
	MTU int
	// MAC is the source address of the frames.
	MAC openflow.MAC

	round     int
	repeated  int
	sent      []sent
	latest    int // where the frames of the present round begin
	received  int
	results   []*result
	elsewhere []topology.PortRef
	search    search
	came      int // of the frames sent
	counters  Counters
}

// NewWay makes a way whose ends say that they carry IP packets of mtu bytes, which is to
// be in the range of MinMTU to MaxMTU.
func NewWay(from, to topology.PortRef, mtu int) *Way {
	w := &Way{From: from, To: to, MTU: mtu}
	copy(w.MAC[:], addressBlock[:])
	_, _ = rand.Read(w.MAC[len(addressBlock):]) // never fails, see package crypto/rand
	return w
}

// full is the size of the largest frame that the ends say they carry.
func (w *Way) full() int { return ethHeader + w.MTU }

// above is the size of a frame that is too large, whatever has been added for tags.
func (w *Way) above() int { return w.full() + 2*tagSize }

// Next makes the frames of the next round. None are left when the way is examined.
func (w *Way) Next() [][]byte {
	w.round++
	switch {
	case w.round == 1:
		return w.frames(w.first())
	case w.round <= rounds:
		if again := w.lost(); len(again) > 0 {
			return w.frames(again)
		}
		w.round = rounds + 1
	}
	return w.frames(w.search.next(w))
}

// first is what is sent of everything once.
func (w *Way) first() []cell {
	all := []cell{{LLDP, smallest}, {ARP, smallest}}
	for k := ICMP; k <= TCPDF; k++ {
		all = append(all, cell{k, smallest}, cell{k, w.full()})
	}
	return append(all, cell{TaggedUDP, smallest + tagSize}, cell{TaggedUDP, w.full() + tagSize}, cell{UDPDF, w.above()})
}

// lost is what has not arrived, as far as it is sent again: the smaller first, because
// where those do not arrive the others need not be asked about.
func (w *Way) lost() []cell {
	var again []cell
	for _, c := range w.first() {
		if w.result(c) == nil && c.size != w.above() {
			again = append(again, c)
		}
	}
	slices.SortStableFunc(again, func(a, b cell) int { return a.size - b.size })
	again = again[:min(len(again), retries-w.repeated)]
	w.repeated += len(again)
	return again
}

// frames makes a frame of each cell, as long as the way may send more.
func (w *Way) frames(cells []cell) [][]byte {
	var out [][]byte
	w.latest = len(w.sent)
	for _, c := range cells[:min(len(cells), MaxFrames-len(w.sent))] {
		s := sent{cell: c}
		_, _ = rand.Read(s.mark[:]) // never fails, see package crypto/rand
		frame := build(c.kind, c.size, w.MAC, s.mark)
		s.frame = untagged(frame)
		w.sent = append(w.sent, s)
		out = append(out, frame)
	}
	return out
}

// Sent is how many frames have been made.
func (w *Way) Sent() int { return len(w.sent) }

// Waiting says whether something of the present round should arrive and has not yet.
func (w *Way) Waiting() bool {
	return slices.ContainsFunc(w.sent[w.latest:], func(s sent) bool {
		return s.size != w.above() && w.result(s.cell) == nil
	})
}

// Receive takes a frame with the way's source address that came in at a port. What is
// none of the way's frames, as far as one can tell, is left out.
func (w *Way) Receive(at topology.PortRef, frame []byte) {
	if w.received++; w.received > maxReceived {
		return
	}
	if at != w.To {
		if !slices.Contains(w.elsewhere, at) && len(w.elsewhere) < maxElsewhere {
			w.elsewhere = append(w.elsewhere, at)
		}
		return
	}
	vlan, tagged := tag(frame)
	body := untagged(frame)
	for i := range w.sent {
		s := &w.sent[i]
		if m := markAt[s.kind]; s.done || len(body) < m+markSize || !bytes.Equal(body[m:m+markSize], s.mark[:]) {
			continue
		}
		s.done = true
		w.came++
		length, changed := compare(s.frame, body)
		w.take(result{cell: s.cell, length: length, changed: changed, tagged: tagged, vlan: vlan})
		return
	}
}

// compare says how many bytes of what was sent have arrived, and where the first differs
// that does, or where more arrived than was sent; 0 if none does. Zeros behind a frame
// are what interfaces fill small ones with.
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

func (w *Way) result(c cell) *result {
	for _, r := range w.results {
		if r.cell == c {
			return r
		}
	}
	return nil
}

// take keeps a result, if it is better than what is known.
func (w *Way) take(r result) {
	old := w.result(r.cell)
	switch {
	case old == nil:
		w.results = append(w.results, &r)
	case !old.whole():
		*old = r
	}
}

// arrived says whether anything did.
func (w *Way) arrived() bool { return len(w.results) > 0 }
