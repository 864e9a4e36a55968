package experiment

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// TestJoinDelays checks that pictures are recognised on their way although the egress gateway gives them
// other timestamps, and that pictures of which something is missing are left out.
func TestJoinDelays(t *testing.T) {
	const shift, missing = 0xfffff000, 7
	begin := time.Unix(1_700_000_000, 0)
	after := func(i, ms int) time.Time { return begin.Add(time.Duration(33*i+ms) * time.Millisecond) }
	var pictures []testbed.SeenPicture
	var passed [3]map[testbed.PictureID]time.Time
	for k := range passed {
		passed[k] = map[testbed.PictureID]time.Time{}
		for i := range 20 {
			if k != 1 || i != missing {
				passed[k][testbed.PictureID{SSRC: 1, Timestamp: uint32(i * 3000)}] = after(i, k+1)
			}
		}
	}
	for i := range 20 {
		stamp := uint32(i*3000) + shift + uint32(i%3) // rounded by the page
		pictures = append(pictures, testbed.SeenPicture{Stamp: stamp, Drawn: after(i, 0), Received: after(i, 4), Decoded: after(i, 5), Seen: after(i, 6)})
	}
	got := joinDelays(pictures, passed[0], passed[1], passed[2])
	if len(got) != 19 {
		t.Fatalf("%d of 19 pictures", len(got))
	}
	for _, x := range got {
		for stage := range delayStages {
			if d := x[stage+1].Sub(x[stage]); d != time.Millisecond {
				t.Errorf("%s: %v", delayStages[stage], d)
			}
		}
	}
	if got := joinDelays(pictures, nil, nil, nil); len(got) != 0 {
		t.Errorf("%d pictures without packets", len(got))
	}
}
