package linkprobe

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/packet"
)

// TestJudgeRewriting checks that a switch which rewrites correctly and as fast as it forwards
// has no fault, and that one whose processor rewrites, or that rewrites wrongly or loses
// packets, has one, unless that cannot be decided.
func TestJudgeRewriting(t *testing.T) {
	const ms = time.Millisecond
	at := func(times ...time.Duration) []time.Duration { return times }
	fast := at(ms, ms, 2*ms, 2*ms)
	for name, tt := range map[string]struct {
		plain, rewritten []time.Duration // of the frames that come back
		spoil            int             // the byte that is changed in what is rewritten
		want             diagnosis.Fault
	}{
		"right":                   {fast, fast, 0, ""},
		"by the processor":        {fast, at(5*ms, 7*ms, 9*ms, 11*ms), 0, RewriteSlow},
		"one frame was held up":   {fast, at(ms, ms, 90*ms, 90*ms), 0, ""},
		"a little slower":         {fast, at(2500*time.Microsecond, 3*ms, 3*ms, 3*ms), 0, ""},
		"both are held up":        {at(50*ms, 60*ms, 60*ms, 60*ms), at(55*ms, 65*ms, 65*ms, 65*ms), 0, ""},
		"lost":                    {fast, nil, 0, RewriteLost},
		"lost, as are all":        {at(ms), nil, 0, ""},
		"wrong address":           {fast, fast, 33, RewriteWrong},
		"wrong checksum":          {fast, fast, 51, RewriteWrong},
		"some lost, some arrived": {fast, at(ms), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			fly := func(b *Burst, times []time.Duration, spoil int) *Burst {
				for i, took := range times {
					b.Send(i, now)
					f := bytes.Clone(b.frames[i].want)
					f[spoil] ^= byte(min(spoil, 1))
					b.Receive(b.Home, f, now.Add(took))
				}
				return b
			}
			plain := fly(NewBurst(near, far, RewriteNothing), tt.plain, 0)
			f, ok := JudgeRewriting(plain, fly(NewBurst(near, far, RewriteAll), tt.rewritten, tt.spoil))
			if f.Fault != tt.want && ok || ok != (tt.want != "") {
				t.Errorf("found %+v, want %q", f, tt.want)
			}
			if ok && (f.From.Switch != far.Switch || f.From.Port != 0 || f.Remedy == "" || f.Found == "") {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestBurstFrames checks that a burst expects correct packets, and that frames which arrive
// elsewhere or twice count once.
func TestBurstFrames(t *testing.T) {
	for _, r := range []Rewriting{RewriteNothing, RewriteEthernet, RewriteAll} {
		b := NewBurst(near, far, r)
		for i := range BurstSize {
			f := b.Send(i, time.Now())
			h, err := packet.Parse(b.frames[i].want)
			if err != nil || !Is(h.EthSrc) || bytes.Equal(f, b.frames[i].want) != (r == RewriteNothing) {
				t.Errorf("%v: %v, %+v", r, err, h)
			}
			b.Receive(other, b.frames[i].want, time.Now())
			b.Receive(b.Home, b.frames[0].want, time.Now())
			b.Receive(b.Home, b.frames[0].want, time.Now())
			b.Receive(b.Home, b.frames[0].want[:20], time.Now())
		}
		if b.arrivedFrames() != 1 || !b.Waiting() {
			t.Errorf("%d frames have come back, want one", b.arrivedFrames())
		}
	}
}
