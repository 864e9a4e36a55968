package ingress

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/pion/rtcp"

	"github.com/sluice-net/sluice/services/cinema/media"
)

// through sends packets of sound of 20 ms through a pacer as they arrive, and returns when they
// leave.
func through(stamps []uint32, comes []time.Duration) (leaves []time.Duration) {
	var c soundLine
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

// TestPacerAfterBacklog checks that sound is not late for long after a producer was away, and has sent at
// once what it could not send meanwhile.
func TestPacerAfterBacklog(t *testing.T) {
	const left, back = 5 * time.Second, 11 * time.Second
	var stamps []uint32
	var comes []time.Duration
	for i := range 1000 {
		at := time.Duration(i) * 20 * time.Millisecond
		if at > left {
			at = max(at, back)
		}
		stamps = append(stamps, uint32(i*960))
		comes = append(comes, at)
	}
	leaves := through(stamps, comes)
	if len(leaves) != len(comes) {
		t.Fatalf("%d of %d packets", len(leaves), len(comes))
	}
	for i := range leaves {
		if held := leaves[i] - comes[i]; held < 0 || comes[i] > back+3*peakTime && held > maxExcess {
			t.Fatalf("the packet that comes at %v is held for %v", comes[i], held)
		}
	}
}

// recording sends what was recorded with picture and sound through a pacer. A packet of each is due
// every 20 ms. Sound arrives in clumps, and nothing arrives while the sender is stalled. recording
// returns for how long each picture was held, and how long after its picture each sound left. The sound of
// the time before comes at the end of that time, all at once.
func recording(clump, before time.Duration, stalled func(time.Duration) bool) (held, skew []time.Duration) {
	const step, packets = 20 * time.Millisecond, 500
	var c pacer
	begin := time.Now()
	report := func(ssrc, stamp uint32) {
		sr := rtcp.SenderReport{SSRC: ssrc, NTPTime: 1 << 40, RTPTime: stamp}
		raw, _ := sr.Marshal()
		p, _ := media.Parse(raw)
		c.add(p, raw, begin)
	}
	const firstPicture, firstSound = 0xffffff00, 0x12345678
	report(1, firstPicture)
	report(2, firstSound)
	came, left := make([]time.Duration, packets), make([]time.Duration, packets) // of pictures
	pictures, sounds := 0, 0
	for at := time.Duration(0); at < packets*step; at += time.Millisecond {
		now := begin.Add(at)
		for !stalled(at) {
			picture, sound := time.Duration(pictures)*step, max((time.Duration(sounds+1)*step+clump-1)/clump*clump, before)
			if min(picture, sound) > at {
				break
			}
			if picture <= sound {
				p := media.Packet{Type: media.VideoType, SSRC: 1, Timestamp: firstPicture + uint32(pictures*1800)}
				came[pictures] = at
				c.add(p, binary.BigEndian.AppendUint16([]byte{'p'}, uint16(pictures)), now)
				pictures++
			} else {
				p := media.Packet{Type: media.AudioType, SSRC: 2, Timestamp: firstSound + uint32(sounds*960)}
				c.add(p, binary.BigEndian.AppendUint16([]byte{'s'}, uint16(sounds)), now)
				sounds++
			}
		}
		for _, raw := range c.release(now) {
			n := binary.BigEndian.Uint16(raw[1:])
			switch raw[0] {
			case 'p':
				left[n] = at
				held = append(held, at-came[n])
			case 's':
				skew = append(skew, at-left[n])
			}
		}
	}
	return held, skew
}

// TestPicturesWaitForLateSound checks that pictures leave at most maxSkew before the sound that was
// recorded with them, and are held no longer than that takes. The time of a picture more does not
// matter.
func TestPicturesWaitForLateSound(t *testing.T) {
	const clump, more = 366 * time.Millisecond, 25 * time.Millisecond
	held, skew := recording(clump, 0, func(time.Duration) bool { return false })
	for i, d := range held[300:] {
		if d > clump-maxSkew+more {
			t.Fatalf("picture %d is held for %v", i+300, d)
		}
	}
	for i, d := range skew[300:] {
		if d < 0 || d > maxSkew+more {
			t.Fatalf("sound %d leaves %v after its picture", i+300, d)
		}
	}
}

// TestPicturesDoNotWait checks that no picture is held if sound is not late, even though the sender
// stalls now and then.
func TestPicturesDoNotWait(t *testing.T) {
	held, skew := recording(21*time.Millisecond, 0, func(at time.Duration) bool { return at%time.Second < 300*time.Millisecond })
	for i, d := range held {
		if d > 0 {
			t.Fatalf("picture %d is held for %v", i, d)
		}
	}
	if len(held) < 490 || len(skew) < 450 {
		t.Errorf("%d pictures, %d packets of sound", len(held), len(skew))
	}
}

// TestPicturesDoNotWaitForTheFirstSound checks that no picture is held because the first sound comes late, as
// from a process that starts.
func TestPicturesDoNotWaitForTheFirstSound(t *testing.T) {
	held, _ := recording(21*time.Millisecond, time.Second, func(time.Duration) bool { return false })
	for i, d := range held {
		if d > 0 {
			t.Fatalf("picture %d is held for %v", i, d)
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
