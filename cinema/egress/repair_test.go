package egress

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cinema/media"
	"github.com/sluice-net/sluice/internal/pause"
)

// What the network loses is sent again and put where it belongs, also while a viewer changes
// channel. If it does not come before the next key frame, or before the other channel, the picture
// goes on there: nothing is seen without what it needs, and little is missed.
func TestLossIsRepaired(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	p, q := w.watches("news"), w.joins("news")
	w.until("picture and sound", p.sees(1))
	for _, s := range w.studios {
		s.loses(0.01)
	}
	for i := range 4 {
		name := []string{"sport", "news"}[i%2]
		pause.For(2*time.Second, "some is lost")
		p.says(`{"request": 1, "channel": "` + name + `"}`)
		if _, status, text := q.changes(name); status != 200 {
			t.Fatal(text)
		}
	}
	pause.For(2*time.Second, "some is lost")
	for _, s := range w.studios {
		s.loses(0)
	}
	pictures := len(p.of(0))
	lost, bursts := 0, 0
	for _, s := range w.studios {
		l, b := s.counts()
		lost, bursts = lost+l, bursts+b
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
		if broken > 0 || gone > 10*time.Second/20 {
			t.Errorf("%s: %v without a picture, %d times before one that is no key frame", name, gone, broken)
		}
		t.Logf("%s: %v without a picture, %d times before one that is no key frame", name, gone, broken)
	}
	if lost < 10 || bursts < 10 || pictures < 200 { // 25 pictures a second
		t.Errorf("%d datagrams lost, %d bursts, %d pictures", lost, bursts, pictures)
	}
	t.Logf("%d datagrams lost, %d bursts, %d pictures in 10 s", lost, bursts, pictures)
}

// moment is when a picture is to be seen.
type moment struct {
	at  time.Duration
	key bool
}

// missed is how long there was no picture where one should have been, and how many times that was
// before a picture that needs those that are missing.
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

// Who cannot have it repaired goes on with the next key frame, and sees nothing that is broken.
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
