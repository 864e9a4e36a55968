package agent

import (
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/sos/agentapi"
)

// A thousand sessions are set up and carried to the end, with right checksums.
func TestThousandSessions(t *testing.T) {
	p := newPair(t, nil)
	const sessions, size = 1000, 20_000
	start := time.Now()
	flows := make([]*flow, sessions)
	for i := range flows {
		flows[i] = p.open(agentapi.Params{Connections: 2})
	}
	t.Logf("%d sessions set up one after the other in %v", sessions, time.Since(start).Round(time.Millisecond))
	if n := len(p.x.list()); n != sessions {
		t.Errorf("%d sessions live at X, want %d", n, sessions)
	}
	var wg sync.WaitGroup
	for _, f := range flows {
		wg.Go(func() { exchange(t, f, size, size) })
	}
	wg.Wait()
	t.Logf("carried to the end after %v", time.Since(start).Round(time.Millisecond))
	for _, a := range []*Agent{p.x, p.y} {
		eventually(t, "all sessions have ended", func() bool { return len(a.list()) == 0 })
		list, _ := a.server.Records()
		for _, r := range list {
			if r.Reason != agentapi.ReasonClosed {
				t.Errorf("session %v at %v: %s %s", r.ID, a.cfg.DataAddr, r.Reason, r.Detail)
			}
		}
	}
}
