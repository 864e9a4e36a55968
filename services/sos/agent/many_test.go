package agent

import (
	"sync"
	"testing"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestManySessions checks that many sessions at once are carried to their ends with correct
// checksums.
func TestManySessions(t *testing.T) {
	p := newPair(t, nil)
	const sessions, size = 300, 20_000
	flows := make([]*flow, sessions)
	for i := range flows {
		flows[i] = p.open(agentapi.Params{Connections: 2})
	}
	if n := len(p.x.list()); n != sessions {
		t.Errorf("%d sessions live at X, want %d", n, sessions)
	}
	var wg sync.WaitGroup
	for _, f := range flows {
		wg.Go(func() { exchange(t, f, size, size) })
	}
	wg.Wait()
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
