package host

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// maker sets up paths in a segment: it puts labels into requests, and counts the frames with each.
type maker struct {
	makes atomic.Bool
	drops func(b []byte) bool // frames with labels; nil for none
	asked atomic.Int32
	by    [16]atomic.Int32 // frames of streams, by their labels
}

const (
	forth, back = 5, 9
	leaseMade   = time.Minute
)

func (m *maker) edit(b []byte) []byte {
	f, err := frame.Parse(b[14:])
	if err != nil {
		return b
	}
	switch f := f.(type) {
	case *frame.PathRequest:
		m.asked.Add(1)
		if m.makes.Load() {
			f.Forth, f.Back, f.Lease = forth, back, uint32(leaseMade.Milliseconds())
			return f.AppendTo(b[:14:14])
		}
	case *frame.StreamData, *frame.StreamAck:
		m.by[b[13]].Add(1)
	}
	if b[13] != 0 && m.drops != nil && m.drops(b) {
		return nil
	}
	return b
}

// used returns how many frames had labels since the last call: those of one direction, those of the
// other, and none.
func (m *maker) used() (there, here, none int32) {
	return m.by[forth].Swap(0), m.by[back].Swap(0), m.by[0].Swap(0)
}

// Frames have the labels of a path that the network has set up, in both directions; none when its
// lease has ended and is not renewed; and the label again when a path is set up again.
func TestLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := &maker{}, newSegment(0)
		m.makes.Store(true)
		s.edit = m.edit
		ha, _ := runHost(t, Options{}, 1, s)
		hb, _ := runHost(t, Options{}, 9, s)
		a, b := attach(t, ha, 1), attach(t, hb, 2)
		for second := range 200 {
			switch second {
			case 70:
				m.makes.Store(false)
			case 130:
				m.makes.Store(true)
			}
			became := send(t, a, b.Name, make([]byte, 5000))
			receive(t, b)
			if err := <-became; err != nil {
				t.Fatal(err)
			}
			pause.For(time.Second, "leases end by the clock")
			there, here, none := m.used()
			labels := there >= 4 && here >= 1 && none == 0
			switch {
			case second < 70 && !labels:
				t.Fatalf("after %d s: %d frames there, %d back, %d without a label", second, there, here, none)
			case second > 110 && second < 130 && (there > 0 || here > 0 || none < 5):
				t.Fatalf("after %d s, without a way: %d frames there, %d back, %d without a label", second, there, here, none)
			case second > 195 && !labels:
				t.Fatalf("after %d s, with a way again: %d frames there, %d back, %d without a label", second, there, here, none)
			}
		}
		if n := m.asked.Load(); n > 10 {
			t.Errorf("the way was asked for %d times in 200 s", n)
		}
	})
}

// A path that was found before the controller knew the receiver gets a label soon.
func TestLabelSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := &maker{}, newSegment(0)
		s.edit = m.edit
		ha, _ := runHost(t, Options{}, 1, s)
		hb, _ := runHost(t, Options{}, 9, s)
		a, b := attach(t, ha, 1), attach(t, hb, 2)
		for i := range 200 {
			became := send(t, a, b.Name, make([]byte, 5000))
			receive(t, b)
			if err := <-became; err != nil {
				t.Fatal(err)
			}
			pause.For(10*time.Millisecond, "the application sends at a rate")
			if i == 10 {
				m.makes.Store(true)
			}
			if i == 150 {
				m.used()
			}
		}
		if there, here, none := m.used(); none > 0 {
			t.Errorf("2 s after the controller knows the receiver: %d frames there, %d back, %d without a label", there, here, none)
		}
	})
}

// A device that does not forward tags, before either host, does not prevent chunks from arriving
// without them.
func TestNoTagsPass(t *testing.T) {
	for name, before := range map[string]byte{"before the sender": 1, "before the receiver": 9} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, s := &maker{}, newSegment(0)
				m.makes.Store(true)
				m.drops = func(b []byte) bool { return b[11] == before } // what it sends; the switch takes off the others'
				s.edit = m.edit
				ha, _ := runHost(t, Options{}, 1, s)
				hb, _ := runHost(t, Options{}, 9, s)
				a, b := attach(t, ha, 1), attach(t, hb, 2)
				for range 20 {
					became := send(t, a, b.Name, make([]byte, 5000))
					receive(t, b)
					if err := <-became; err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// When the controller has ended and broadcasts reach nobody, a stream that has a path continues
// after its lease. Other applications find names at the same two hosts by the same labels: known and
// new ones, in both directions, also for multicast.
func TestNoController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := &maker{}, newSegment(0)
		m.makes.Store(true)
		var ended atomic.Bool
		s.edit = func(b []byte) []byte {
			if b = m.edit(b); ended.Load() && b[13] == 0 {
				return nil // the switches only have rules for labels
			}
			return b
		}
		ha, _ := runHost(t, Options{}, 1, s)
		hb, _ := runHost(t, Options{}, 9, s)
		a, b := attach(t, ha, 1), attach(t, hb, 2)
		exchange := func(from, to *Endpoint, service frame.Service) {
			t.Helper()
			became := make(chan error, 1)
			if err := from.Send(t.Context(), to.Name, service, make([]byte, 5000), func(err error) { became <- err }); err != nil {
				t.Fatal(err)
			}
			receive(t, to)
			if err := <-became; err != nil {
				t.Fatal(err)
			}
		}
		exchange(a, b, 0)
		ended.Store(true)
		for range 3 * int(leaseMade/time.Second) {
			exchange(a, b, 0)
			pause.For(time.Second, "the lease ends by the clock")
		}
		x, y := attach(t, ha, 3), attach(t, hb, 4)
		exchange(x, b, 0)
		exchange(y, a, 0)
		exchange(y, attach(t, ha, 7), 0)
		exchange(attach(t, ha, 5), b, frame.Multicast)
		pingCtx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := attach(t, ha, 6).Ping(pingCtx, b.Name); err != nil {
			t.Error(err)
		}
		for range 3 * int(leaseMade/time.Second) {
			exchange(x, b, 0)
			pause.For(time.Second, "the path is used beyond its lease")
		}
	})
}
