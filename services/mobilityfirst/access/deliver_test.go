package access

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// bits returns a bitmap with the first bits set.
func bits(packets, set uint32) frame.Bitmap {
	b := frame.NewBitmap(packets)
	for n := range set {
		b.Set(n)
	}
	return b
}

// A host that claims again and again that it has lost frames gets no burst each time, and the chunk
// is left with its sender.
func TestBackAndForth(t *testing.T) {
	w := newWorld(t, trouble{}, Options{})
	bad, ours, ctx := w.greeted(1), w.ours(9), w.patiently()
	if err := ours.Send(ctx, nameOf(1), 0, make([]byte, 200_000), func(error) {}); err != nil {
		t.Fatal(err)
	}
	const most = 60 * burstBytes / mtu // frames: a burst for each time that the host is asked once more, and some for progress
	data, asked := 0, uint32(0)
	for deadline := time.Now().Add(patience); w.Counters().Refused == 0; {
		switch f := bad.hear(never).(type) {
		case *frame.CSYN:
			asked++
			bad.say(&frame.CACK{Hop: f.Hop, Packets: f.Packets, Received: bits(f.Packets, asked%2)})
		case *frame.Data:
			data++
		}
		if data > most || time.Now().After(deadline) {
			t.Fatalf("%d frames after %d questions: %+v", data, asked, w.Counters())
		}
	}
}

// Only frames that were never received before are progress, except after a restart of the host,
// which counts a few times.
func TestProgress(t *testing.T) {
	const packets = 100
	for _, x := range []struct {
		name       string
		associates int // how often the host does before each CACK but the first
		has        []uint32
		want       []bool
	}{
		{"grows", 0, []uint32{0, 0, 5, 5, 9}, []bool{true, false, true, false, true}},
		{"falls back", 0, []uint32{0, 5, 0, 1, 4, 5, 6}, []bool{true, true, false, false, false, false, true}},
		{"begins anew", 1, []uint32{5, 0, 1, 2}, []bool{true, false, true, true}},
		{"has more than before", 1, []uint32{5, 7, 8}, []bool{true, true, true}},
		{
			"begins without end", 3,
			[]uint32{1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1},
			[]bool{true, false, true, false, true, false, true, false, false, false, false, false, false},
		},
	} {
		transfer, association := &transfer{packets: packets}, uint64(0)
		for i, has := range x.has {
			if news := transfer.update(bits(packets, has), association); news != x.want[i] {
				t.Errorf("%s: CACK %d is progress: %v", x.name, i, news)
			}
			association += uint64(x.associates)
		}
	}
}

// The CACKs handled per second are limited.
func TestManyCACKs(t *testing.T) {
	r, err := New(Options{Hosts: []Host{{GUID: guidOf(1), Key: keyOf(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	g, now, at := r.all[0], time.Now(), place{&link{router: r}, macOf(1)}
	r.handle(at, mtu, (&frame.Associate{Client: guidOf(1).Short()}).AppendTo(nil), now)
	x := &transfer{guest: g, hop: 1, packets: 9, cacks: make(chan frame.Bitmap, 1)}
	g.sending[x.hop] = x
	heard := 0
	for range 2 * maxCACKs {
		r.handle(at, mtu, (&frame.CACK{Hop: 1, Packets: 9, Received: bits(9, 1)}).AppendTo(nil), now)
		select {
		case <-x.cacks:
			heard++
		default:
		}
	}
	if c := r.Counters(); heard != maxCACKs || c.Excess != maxCACKs {
		t.Errorf("%d are heard, %+v", heard, c)
	}
}
