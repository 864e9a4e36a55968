package agent

import (
	"math/rand/v2"
	"slices"
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
				killed := map[*conn]bool{}
				for {
					d := time.NewTimer(time.Duration(rand.IntN(3000)) * time.Microsecond)
					select {
					case <-stop:
						return
					case <-d.C:
					}
					// One is always left, or nobody could tell Y that X is done.
					if s := p.x.session(f.id); s != nil {
						left := slices.DeleteFunc(slices.Clone(*s.conns.Load()), func(c *conn) bool { return killed[c] })
						if len(left) > 1 {
							killed[left[0]] = true
							resetNow(left[0].net)
						}
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
