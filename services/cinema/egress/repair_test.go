package egress

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/cinema/media"
)

// TestLossIsRepaired checks that lost packets are requested again and put in their place, also
// during a change of channel. If they do not arrive before the next key frame, or before the
// other channel, the picture continues there. No picture is seen without what it depends on,
// and little is missed.
func TestLossIsRepaired(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	p, q := w.watches("news"), w.joins("news")
	w.until("picture and sound", p.sees(1))
	for _, s := range w.studios {
		s.loses(0.01)
	}
	lost := func() (n int) {
		for _, s := range w.studios {
			l, _ := s.counts()
			n += l
		}
		return n
	}
	repaired := func() int { // packets that were lost, and not given up
		n := lost()
		for _, v := range w.live() {
			n -= int(v.Lost)
		}
		return n
	}
	for i := range 5 {
		before := lost()
		w.until("some loss", func() bool { return lost() > before+2 })
		if i == 4 {
			break
		}
		name := []string{"sport", "news"}[i%2]
		p.says(`{"request": 1, "channel": "` + name + `"}`)
		if _, status, text := q.changes(name); status != 200 {
			t.Fatal(text)
		}
	}
	w.until("packets that are repaired", func() bool { return repaired() >= 5 })
	for _, s := range w.studios {
		s.loses(0)
	}
	p.whole()
	q.continuous()
	var light, heavy []moment
	for _, u := range p.of(0) {
		light = append(light, moment{time.Duration(u.time) * time.Microsecond, u.flags&flagKey != 0})
	}
	for _, x := range q.packets("video") {
		heavy = append(heavy, moment{time.Duration(x.timestamp) * time.Second / media.VideoClock, x.nal == 0x67})
	}
	for name, all := range map[string][]moment{"by WebSocket": light, "by WebRTC": heavy} {
		gone, broken := missed(all)
		if broken > 0 {
			t.Errorf("%s: %d times there was no picture before one that is no key frame", name, broken)
		}
		t.Logf("%s: %v without a picture", name, gone)
	}
	t.Logf("%d datagrams lost, %d of them repaired", lost(), repaired())
}

// moment is when a picture is to be seen.
type moment struct {
	at  time.Duration
	key bool
}

// missed returns how long there was no picture where one should have been, and how often a
// picture was shown that depends on missing ones.
func missed(all []moment) (gone time.Duration, broken int) {
	const usual = 40 * time.Millisecond
	for i := 1; i < len(all); i++ {
		gap := all[i].at - all[i-1].at
		if gap <= usual*3/2 {
			continue
		}
		if gone += gap - usual; !all[i].key {
			broken++
		}
	}
	return gone, broken
}

// TestLossWithoutRepair checks that a viewer who cannot have losses repaired continues with the
// next key frame, and sees no broken picture.
func TestLossWithoutRepair(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Burst = false }, "news")
	p := w.watches("news")
	w.until("picture and sound", p.sees(1))
	w.studios["news"].loses(0.03)
	w.until("some loss that is given up", func() bool { live := w.live(); return len(live) == 1 && live[0].Lost > 3 })
	w.studios["news"].loses(0)
	before := len(p.of(0))
	w.until("pictures again", func() bool { return len(p.of(0)) > before+gop })
	p.whole()
	if !slices.ContainsFunc(p.of(0)[before:], func(u unit) bool { return u.flags&flagKey != 0 }) {
		t.Error("no key frame")
	}
}
