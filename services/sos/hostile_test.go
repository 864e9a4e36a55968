package sos

import (
	"testing"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestMissedEnd checks that a session ends, and its rules are removed, even if its end was missed:
// an agent keeps only a limited number of ends, so that one may be missing after an interruption of
// its events.
func TestMissedEnd(t *testing.T) {
	b := newBench(t)
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		t.Fatal(got)
	}
	id := b.x.only(t)
	b.eventually("the session is live", func() bool {
		b.service.mu.Lock()
		defer b.service.mu.Unlock()
		ss := b.service.sessions.byID[id]
		return ss != nil && ss.state == StateLive
	})
	for _, a := range []*fakeAgent{b.x, b.y} {
		a.mu.Lock()
		delete(a.sessions, id)
		a.seq += 2000
		other := agentapi.SessionRecord{Reason: agentapi.ReasonClosed}
		other.ID = agentapi.NewSessionID()
		for c := range a.streams {
			c <- agentapi.Event{Instance: a.instance, Status: a.load(), Seq: a.seq, Ended: []agentapi.SessionRecord{other}}
		}
		a.mu.Unlock()
	}
	b.eventually("no rule is left", func() bool { return len(b.net.kept()) == 0 })
}
