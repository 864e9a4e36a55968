package fake_test

import (
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

// TestJoinedSwitches lets two switches pass each other frames at the same time.
func TestJoinedSwitches(t *testing.T) {
	const frames = 2000
	var ends [2]*fake.Switch
	var out [2]int
	var mu sync.Mutex
	for i := range ends {
		ends[i] = fake.NewSwitch(fake.Options{DPID: openflow.DatapathID(i + 1), Ports: 2, OnOutput: func(port uint32, frame []byte) {
			if port == 2 {
				_, _ = ends[1-i].Receive(2, frame)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[i]++
		}})
		add(t, ends[i].Table(), 1, openflow.MustMatch(openflow.InPort(1)), 2)
		add(t, ends[i].Table(), 1, openflow.MustMatch(openflow.InPort(2)), 1)
	}
	var all sync.WaitGroup
	for _, s := range ends {
		all.Go(func() {
			for range frames {
				_, _ = s.Receive(1, make([]byte, 60))
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("the switches wait for each other")
	}
	if out != [2]int{frames, frames} {
		t.Errorf("frames that came out: %v, want %d each", out, frames)
	}
}
