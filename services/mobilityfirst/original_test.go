package mobilityfirst

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Broadcasts of hosts of the original release are forwarded to all hosts, within the limits of a
// port and in total, and do not affect paths.
func TestOriginalBroadcasts(t *testing.T) {
	in(t, Options{}, func(w *world) {
		passes := func(at place, times int) (passed int) {
			for i := range times {
				frames := []frame.Frame{&frame.Probe{Source: 7, Sequence: uint32(i)}, &frame.Associate{Client: 7}, &frame.Deassociate{Entity: 7}}
				if w.receive(message{place: at, received: time.Now(), send: w.net}, frames[i%3].AppendTo(nil)) == network.Continue {
					passed++
				}
			}
			return passed
		}
		if n := passes(host(1, 1), 3*floodsPerPort); n != floodsPerPort {
			t.Errorf("%d pass from one port, want %d", n, floodsPerPort)
		}
		if n := passes(host(2, 2), 10); n != 10 {
			t.Errorf("%d of 10 pass from another", n)
		}
		for i := range byte(40) {
			passes(host(3, i), floodsPerPort)
		}
		if n := passes(host(3, 100), 10); n != 0 {
			t.Errorf("%d pass when others at the switch have sent all that may", n)
		}
		w.say(numbered(2), host(2, 2))
		w.sent()
		w.ask(numbered(1), host(1, 1), numbered(2).name)
		if q := w.request(host(2, 2)); q.Forth == 0 {
			t.Error("there is no path for a host at the same port")
		}
	})
}
