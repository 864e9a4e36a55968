package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-net/sluice/sos/agentapi"
)

// Connections between the agents die all the time while many sessions come to
// their ends: each ends well, with every byte.
func TestEndsUnderLoss(t *testing.T) {
	for _, tls := range []bool{false, true} {
		p := newPair(t, withTLS(t, tls))
		for i := range 50 {
			f := p.open(agentapi.Params{Connections: 3, ChunkBytes: 4 << 10, TLS: tls})
			bounded(f, 10*time.Second)
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					d := time.NewTimer(time.Duration(rand.IntN(3000)) * time.Microsecond)
					select {
					case <-stop:
						return
					case <-d.C:
					}
					s := []*Agent{p.x, p.y}[rand.IntN(2)].session(f.id)
					if s == nil {
						continue
					}
					if list := *s.conns.Load(); len(list) > 1 {
						resetNow(list[rand.IntN(len(list))].net)
					}
				}
			}()
			exchange(t, f, int64(rand.IntN(400000)), int64(rand.IntN(400000)))
			rx, ry := f.ended(p.x), f.ended(p.y)
			close(stop)
			<-stopped
			if rx.Reason != agentapi.ReasonClosed || ry.Reason != agentapi.ReasonClosed {
				t.Errorf("session %d, tls=%v: x %v %v, y %v %v, %d connections lost", i, tls, rx.Reason, rx.Detail, ry.Reason, ry.Detail, rx.Counters.ConnsLost)
			}
			if t.Failed() {
				return
			}
		}
	}
}
