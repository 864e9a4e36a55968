package host

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/udplink"
)

// nowhere is a socket that is not used, without headers.
type nowhere struct{ Socket }

func (nowhere) AppendHeader(b []byte, _ openflow.MAC, _ uint16) []byte { return b }

// farPath returns the path to a name, and the number of chunk bytes in each frame.
func farPath(h *Host, from, to frame.GUID) (p path, payload int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.outgoing[streamKey{from: from, to: to}]
	if o == nil || o.path == nil {
		return path{}, 0
	}
	return *o.path, o.sender.Payload
}

// Frames to a far host become as large as arrive there. They keep that size when the path is
// requested again, and begin small when the receiver was silent.
func TestProbe(t *testing.T) {
	d := newDirectory()
	a, _ := runFar(t, d, "127.0.0.1", nil)
	b, _ := runFar(t, d, "127.0.0.2", nil)
	from, to := attach(t, a, 1), attach(t, b, 2)
	soon(t, "both names are published", func() bool { return len(d.where(from.Name)) == 1 && len(d.where(to.Name)) == 1 })
	carry := func(bytes int) {
		t.Helper()
		became := send(t, from, to.Name, random(bytes, 1))
		if r := receive(t, to); len(r.Payload) != bytes {
			t.Fatalf("%d bytes of %d", len(r.Payload), bytes)
		}
		if err := <-became; err != nil {
			t.Fatal(err)
		}
	}
	carry(1_000_000)
	soon(t, "large frames", func() bool {
		p, payload := farPath(a, from.Name, to.Name)
		return p.mtu == udplink.MaxMTU && payload == udplink.MaxMTU-frame.StreamDataSize
	})
	carry(1_000_000)
	for _, silent := range []int{0, maxSilences} {
		a.mu.Lock()
		o := a.outgoing[streamKey{from: from.Name, to: to.Name}]
		o.path.silences = silent
		o.handleGrant(&path{place: o.path.place, expires: o.path.expires, number: o.path.number}, time.Now())
		known := o.path.mtu
		a.mu.Unlock()
		if want := map[int]int{0: udplink.MaxMTU, maxSilences: udplink.MTU}[silent]; known != want {
			t.Errorf("silent %d times: frames of %d bytes, want %d", silent, known, want)
		}
		carry(100_000)
	}
	soon(t, "large frames again", func() bool { p, _ := farPath(a, from.Name, to.Name); return p.mtu == udplink.MaxMTU })
}

// Only an answer to a probe, from the place that it was sent to, shows that frames arrive.
func TestProbeAnswers(t *testing.T) {
	h := New(Options{Far: &Far{Names: &directory{}}})
	l := h.far.link
	l.Interface, l.up = &Interface{MTU: udplink.MaxMTU, Socket: nowhere{}}, true
	e := attach(t, h, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	o, err := h.outgoingTo(e, frame.GUID{1})
	if err != nil {
		t.Fatal(err)
	}
	there := place{l, [6]byte{2, 0, 192, 0, 2, 1}}
	o.handleGrant(&path{place: there, expires: now.Add(lease)}, now)
	p := o.path
	if len(p.probes) != 3 || p.mtu != udplink.MTU || p.probes[0].size != udplink.MaxMTU {
		t.Fatalf("%d bytes, asks for %+v", p.mtu, p.probes)
	}
	before := o.sender.Stream
	for i, x := range p.probes {
		if x.stream.Session() != before.Session() || x.stream == before {
			t.Errorf("probe of stream %x, which is %x", x.stream, before)
		}
		if f := l.control[len(l.control)-len(p.probes)+i]; len(f) != x.size {
			t.Errorf("probe of %d bytes, want %d", len(f), x.size)
		}
	}
	for name, wrong := range map[string]func(){
		"from elsewhere": func() {
			h.handleReset(place{l, [6]byte{2, 0, 192, 0, 2, 2}}, &frame.StreamReset{Stream: p.probes[0].stream, Reason: frame.ResetUnknown}, now)
		},
		"of another link": func() {
			h.handleReset(place{h.links[0], there.mac}, &frame.StreamReset{Stream: p.probes[0].stream, Reason: frame.ResetUnknown}, now)
		},
		"to nothing": func() {
			h.handleReset(there, &frame.StreamReset{Stream: p.probes[2].stream + 5, Reason: frame.ResetUnknown}, now)
		},
	} {
		if wrong(); p.mtu != udplink.MTU {
			t.Errorf("an answer %s: frames of %d bytes", name, p.mtu)
		}
	}
	for _, i := range []int{1, 2, 0} { // in any order
		h.handleReset(there, &frame.StreamReset{Stream: p.probes[i].stream, Reason: frame.ResetUnknown}, now)
		if want := map[int]int{1: 1472, 2: 1472, 0: udplink.MaxMTU}[i]; p.mtu != want || o.sender.Payload != want-frame.StreamDataSize || o.path != p {
			t.Errorf("answer %d: frames of %d bytes with %d of chunks, want %d", i, p.mtu, o.sender.Payload, want)
		}
	}
}
