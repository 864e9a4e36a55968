package ingress

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/cinema/media"
)

// through sends packets of sound of 20 ms through a pacer as they arrive, and returns when they
// leave.
func through(stamps []uint32, comes []time.Duration) (leaves []time.Duration) {
	var c pacer
	begin := time.Now()
	i := 0
	for at := time.Duration(0); i < len(comes) || len(c.held) > 0; at += time.Millisecond {
		for ; i < len(comes) && comes[i] <= at; i++ {
			c.add(media.Packet{Timestamp: stamps[i]}, []byte{byte(i)}, begin.Add(at))
		}
		for range c.release(begin.Add(at)) {
			leaves = append(leaves, at)
		}
	}
	return leaves
}

// TestPacer checks that sound that arrives in clumps leaves evenly, and that no packet is held
// for longer than the clumps are long.
func TestPacer(t *testing.T) {
	for name, clump := range map[string]time.Duration{
		"frames of AAC": 1024 * time.Second / media.AudioClock, "pictures": 40 * time.Millisecond, "live": time.Millisecond,
		"AAC of 64 kbit/s in MPEG-TS": 366 * time.Millisecond, "the longest of MPEG-TS": 700 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			var stamps []uint32
			var comes []time.Duration
			for i := range 400 {
				ready := time.Duration(i+1) * 20 * time.Millisecond // when all of it has been recorded
				stamps = append(stamps, uint32(0xffffff00+i*960))
				comes = append(comes, (ready+clump-1)/clump*clump)
			}
			leaves := through(stamps, comes)
			if len(leaves) != len(comes) {
				t.Fatalf("%d of %d packets", len(leaves), len(comes))
			}
			for i := 200; i < len(leaves); i++ {
				if gap := leaves[i] - leaves[i-1]; gap < 18*time.Millisecond || gap > 22*time.Millisecond {
					t.Errorf("packet %d leaves %v after the one before", i, gap)
				}
				if held := leaves[i] - comes[i]; held < 0 || held > clump+2*time.Millisecond {
					t.Errorf("packet %d is held for %v", i, held)
				}
			}
		})
	}
}

// TestPicturesAreHeld checks that pictures leave with the sound that was recorded with them, but
// for what nobody notices, and in their order; and that they are held no longer than needed when
// the clumps have ended.
func TestPicturesAreHeld(t *testing.T) {
	var c pacer
	var line pictureLine
	begin := time.Now()
	const clump, second = 366 * time.Millisecond, 50
	sound := 0
	var last time.Duration
	for i := range 50 * second {
		at := time.Duration(i) * 20 * time.Millisecond
		now := begin.Add(at)
		clumps := i < 20*second
		for ; time.Duration(sound+1)*20*time.Millisecond <= at && (!clumps || at%clump < 20*time.Millisecond); sound++ {
			c.add(media.Packet{Timestamp: uint32(sound * 960)}, []byte{1}, now)
		}
		c.release(now)
		line.add([]byte{byte(i)}, now, c.delay(now))
		for _, raw := range line.release(now) {
			if want := byte(last / (20 * time.Millisecond)); raw[0] != want {
				t.Fatalf("picture %d leaves in the place of %d", raw[0], want)
			}
			held := at - last
			last += 20 * time.Millisecond
			switch heldSound := clump - maxSkew; {
			case i > 2*second && i < 19*second && (held < heldSound-40*time.Millisecond || held > heldSound+40*time.Millisecond):
				t.Fatalf("at %v a picture has been held for %v, sound for %v", at, held, clump)
			case i > 45*second && held > 40*time.Millisecond:
				t.Fatalf("at %v a picture has been held for %v", at, held)
			}
		}
	}
}

// TestPacerIsBounded checks that packets of another clock, or too many, are not held.
func TestPacerIsBounded(t *testing.T) {
	var stamps []uint32
	var comes []time.Duration
	for i := range 100 {
		stamp := uint32(i * 960)
		switch {
		case i >= 60:
			stamp -= 1 << 30
		case i >= 30:
			stamp += 1 << 20
		}
		stamps = append(stamps, stamp)
		comes = append(comes, time.Duration(i/10)*200*time.Millisecond)
	}
	leaves := through(stamps, comes)
	if len(leaves) != len(comes) {
		t.Fatalf("%d of %d packets", len(leaves), len(comes))
	}
	for i := range leaves {
		if held := leaves[i] - comes[i]; held < 0 || held > 200*time.Millisecond {
			t.Errorf("packet %d is held for %v", i, held)
		}
	}
}
