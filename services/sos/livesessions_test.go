package sos

import (
	"strings"
	"testing"
	"time"
)

// stored returns the number of live sessions in the store.
func (b *bench) stored() int {
	b.t.Helper()
	entries, err := b.store.List(b.t.Context(), keyLive)
	if err != nil {
		b.t.Fatal(err)
	}
	return len(entries)
}

// TestForgottenSession checks that a session is in the history, exactly once, if both its agents
// forget it while no controller runs.
func TestForgottenSession(t *testing.T) {
	b := newBench(t)
	id := b.live()
	if b.service.history.saveLive(t.Context()); b.stored() != 0 {
		t.Error("a session that has just begun is stored")
	}
	b.service.mu.Lock()
	b.service.sessions.byID[id].Started = time.Now().Add(-2 * rememberAfter)
	b.service.mu.Unlock()
	if b.service.history.saveLive(t.Context()); b.stored() != 1 {
		t.Errorf("%d sessions are stored, want the one that lasts", b.stored())
	}
	b.stop()
	b.start()
	b.eventually("the session that is still there is known to be stored", func() bool {
		b.service.mu.Lock()
		defer b.service.mu.Unlock()
		ss := b.service.sessions.byID[id]
		return ss != nil && ss.inStore
	})
	b.stop()
	for _, a := range []*fakeAgent{b.x, b.y} {
		a.mu.Lock()
		clear(a.sessions)
		a.mu.Unlock()
	}
	b.net.Restart() // the network removes rules that nobody declares
	for range 2 {
		b.start()
		b.eventually("the session is in the history, and in the store no more", func() bool { return len(b.past()) == 1 && b.stored() == 0 })
		r := b.past()[0]
		if r.ID != id.String() || r.Client != hostA || r.ClientAgent != "x" || r.ServerAgent != "y" || !strings.HasPrefix(r.How, "not known") {
			t.Errorf("archived %+v", r)
		}
		b.stop()
	}
}

// TestEndedSessionIsForgotten ends a session that is stored.
func TestEndedSessionIsForgotten(t *testing.T) {
	b := newBench(t)
	id := b.live()
	b.service.mu.Lock()
	b.service.sessions.byID[id].Started = time.Now().Add(-2 * rememberAfter)
	b.service.mu.Unlock()
	b.eventually("the session is stored", func() bool { return b.stored() == 1 })
	b.x.finish(id, "closed")
	b.y.finish(id, "closed")
	b.clean()
	b.eventually("the session is stored no more", func() bool { return b.stored() == 0 })
}
