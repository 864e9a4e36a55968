package host

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// A host says hello when its link comes up, and repeats it a few times; it does so again when the
// kernel reports that the carrier was lost.
func TestGreetsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		began := time.Now()
		var at []time.Duration
		var numbers []uint64
		s.watch(func(b []byte) {
			if f, err := frame.Parse(b[14:]); err == nil {
				if hello, is := f.(*frame.Hello); is {
					at, numbers = append(at, time.Since(began).Round(10*time.Millisecond)), append(numbers, hello.Number)
				}
			}
		})
		h, _ := runHost(t, Options{}, 10, s)
		attach(t, h, 1)
		pause.For(5*time.Second, "a new link")
		h.mu.Lock()
		h.links[1].Index = 7
		h.mu.Unlock()
		for _, x := range []struct {
			index   int
			changes uint32
		}{{7, 2}, {7, 2}, {8, 4}, {7, 4}} { // told first; nothing new; another's; away and there again
			h.carrierChanged(x.index, x.changes)
			pause.For(time.Second, "the next news")
		}
		want := []time.Duration{
			0, 20 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond, 1200 * time.Millisecond, 3200 * time.Millisecond,
			5 * time.Second, 5020 * time.Millisecond, 5050 * time.Millisecond, 5300 * time.Millisecond, 6200 * time.Millisecond,
			8 * time.Second, 8020 * time.Millisecond, 8050 * time.Millisecond, 8300 * time.Millisecond,
		}
		pause.For(9*time.Second, "it has said all, but for every ten seconds")
		synctest.Wait()
		at, numbers = at[:len(want)], numbers[:len(want)]
		flaps := time.Now()
		for i := range uint32(200) {
			h.carrierChanged(7, 10+2*i)
			pause.For(5*time.Millisecond, "the carrier comes and goes")
		}
		pause.For(2*time.Second, "what is repeated")
		synctest.Wait()
		if n := len(at) - len(want); n < 3 || n > 30 {
			t.Errorf("a carrier that came and went for %v: %d hellos", time.Since(flaps), n)
		}
		if last := time.Unix(0, int64(numbers[len(numbers)-1])); last.Sub(flaps) < time.Second {
			t.Errorf("the last hello is of %v, from before the end", last.Sub(flaps))
		}
		at, numbers = at[:len(want)], numbers[:len(want)]
		s.watch(nil)
		if at = slices.Compact(at); !slices.Equal(at, want) {
			t.Errorf("hello at %v, want %v", at, want)
		}
		if !slices.IsSorted(numbers) {
			t.Errorf("their numbers are %d", numbers)
		}
	})
}
