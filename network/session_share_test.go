package network

import (
	"testing"
	"time"
)

// TestBusySwitchesTakeTurns checks that any number of switches which send without pause use no
// more than half of the processors at one time, and that a switch which sends seldom is not one of
// them.
func TestBusySwitchesTakeTurns(t *testing.T) {
	const processors, batch = 4, time.Millisecond
	now := time.Unix(1, 0)
	var busy, calm cpuShare
	for range 100 {
		busy.spend(now, now.Add(batch), processors)
		now = now.Add(batch)
	}
	for range 100 {
		calm.spend(now, now.Add(batch/10), processors)
		now = now.Add(10 * batch)
	}
	if !busy.busy(time.Unix(1, 0).Add(100*batch), processors) || calm.busy(now, processors) {
		t.Error("who sends without pause is not busy, or who sends seldom is")
	}
	turns := newReaderSemaphore(processors)
	all := make([]readerSlot, processors)
	for i := range all {
		all[i].semaphore = turns
	}
	for i := range processors / 2 {
		all[i].acquire()
	}
	taken := make(chan struct{})
	go func() {
		all[processors-1].acquire()
		close(taken)
	}()
	select {
	case <-taken:
		t.Error("more than half of the processors are taken")
	default:
	}
	all[0].release()
	all[0].release()
	<-taken
}

// TestShareOfTime checks that a switch within its share never waits, that a switch which takes all
// it can gets its share, and that the time in which a machine stalls is charged to no switch.
func TestShareOfTime(t *testing.T) {
	const batch = time.Millisecond
	for _, c := range []struct {
		name   string
		of     int           // processors
		idle   time.Duration // between two batches
		took   time.Duration // by each
		least  time.Duration // of the waits within a minute
		atMost time.Duration
	}{
		{"seldom", 2, 10 * batch, batch, 0, 0},
		{"its share", 2, 3 * batch, batch, 0, 0},
		{"without pause", 2, 0, batch, 44 * time.Second, 45 * time.Second},
		{"without pause, of four", 4, 0, batch, 29 * time.Second, 30 * time.Second},
		{"without pause, of eight", 8, 0, batch, 0, 0},
		{"stands still", 2, time.Second, time.Second, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b cpuShare
			var waited time.Duration
			start := time.Unix(1, 0)
			for now := start; now.Sub(start) < time.Minute; {
				pause := b.spend(now, now.Add(c.took), c.of)
				waited += pause
				now = now.Add(c.took + pause + c.idle)
			}
			if waited < c.least || waited > c.atMost {
				t.Errorf("waited %v of a minute, want %v to %v", waited, c.least, c.atMost)
			}
		})
	}
}
