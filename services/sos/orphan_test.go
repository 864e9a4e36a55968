package sos

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// live sets a session up and returns its identifier.
func (b *bench) live() agentapi.SessionID {
	b.t.Helper()
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		b.t.Fatalf("the packet was %s", got)
	}
	b.eventually("the session is live", func() bool {
		live := b.service.records("live")
		return len(live) == 1 && live[0].State == StateLive
	})
	return b.x.only(b.t)
}

// TestEndedWithoutController ends a session while no controller runs. It checks that the next
// controller archives it, and that none after that does so again.
func TestEndedWithoutController(t *testing.T) {
	b := newBench(t)
	id := b.live()
	b.stop()
	for _, a := range []*fakeAgent{b.x, b.y} {
		a.finish(id, agentapi.ReasonClosed)
		a.past[0].Ended = time.Now().Add(-time.Minute)
	}
	b.start()
	b.eventually("the session is in the history", func() bool { return len(b.past()) == 1 })
	r := b.past()[0]
	if r.ID != id.String() || r.Client != hostA || r.Server != hostB || r.BytesDown != 1000 || !strings.HasPrefix(r.How, "closed") ||
		r.ClientAgent != "x" || r.ServerAgent != "y" || r.Ended == nil || r.Entry == "" || len(r.ClientPath) == 0 {
		t.Errorf("archived %+v", r)
	}
	for range 2 {
		b.stop()
		b.start()
		b.agentsUp()
		b.eventually("what the agents have told is sorted out", func() bool {
			b.service.mu.Lock()
			defer b.service.mu.Unlock()
			return len(b.service.history.orphans) == 0
		})
		if past := b.past(); len(past) != 1 || b.service.history.totals.Carried != 1 {
			t.Errorf("after another restart: %+v, %+v", past, b.service.history.totals)
		}
	}
}

// TestRulesOutlastAnEnd ends a session just before the controller starts, and checks that its rules
// stay for the last segments as usual.
func TestRulesOutlastAnEnd(t *testing.T) {
	b := newBench(t)
	b.linger = time.Minute // long enough for the start
	id := b.live()
	b.stop()
	b.x.finish(id, agentapi.ReasonClosed)
	b.y.finish(id, agentapi.ReasonClosed)
	before := b.net.Programs()
	b.net.Restart()
	b.start()
	for key := range before {
		if len(b.net.AtReady()[key].Rules) == 0 {
			t.Errorf("%s is not declared when the network may remove what nobody wants", key)
		}
	}
	b.stop()
	b.linger = 20 * time.Millisecond
	b.start()
	b.clean()
	b.stop()
	b.start()
	if past := b.past(); len(past) != 1 || past[0].How != "closed" || len(b.service.records("live")) != 0 {
		t.Errorf("history: %+v", past)
	}
}

// TestHistoryIsWhole ends a session, and kills the controller before the end is stored.
func TestHistoryIsWhole(t *testing.T) {
	b := newBench(t)
	id := b.live()
	b.x.finish(id, agentapi.ReasonClientReset)
	b.y.finish(id, agentapi.ReasonClientReset)
	b.clean()
	b.stop()
	pages, err := b.store.List(t.Context(), keyHistory)
	if err != nil || len(pages) != 1 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	if err := b.store.Delete(t.Context(), pages[0].Key); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.eventually("the session is in the history", func() bool { return len(b.past()) == 1 })
}

// TestFailedSetUpIsNoOrphan lets a set-up fail half-way, and restarts the controller. It checks
// that what agents report of it does not become a session.
func TestFailedSetUpIsNoOrphan(t *testing.T) {
	b := newBench(t)
	b.y.commit = func() error { return &control.Problem{Code: control.CodeRefused} }
	b.x.phase, b.y.phase = agentapi.PhaseCommitted, agentapi.PhaseCommitted
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "forwarded" {
		t.Fatalf("the packet was %s", got)
	}
	b.clean()
	b.stop()
	b.start()
	b.agentsUp()
	b.eventually("what the agents have told is sorted out", func() bool {
		b.service.mu.Lock()
		defer b.service.mu.Unlock()
		return len(b.service.history.orphans) == 0
	})
	if past := b.past(); len(past) != 1 || !strings.HasPrefix(past[0].How, notEstablished) {
		t.Errorf("history: %+v", past)
	}
}

// nobodyReset checks for a while that no end host is made to reset.
func (b *bench) nobodyReset() {
	b.t.Helper()
	select {
	case f := <-b.net.Sent:
		b.t.Errorf("somebody is provoked to be reset: %x", f)
	case <-time.After(2 * maxProbeDelay):
	}
}

// TestHalfEndedWithoutController lets one agent end a session while no controller runs, and the
// other still carry it to its end. It checks that no end host is reset.
func TestHalfEndedWithoutController(t *testing.T) {
	b := newBench(t)
	id := b.live()
	b.stop()
	b.x.finish(id, agentapi.ReasonClosed)
	b.start()
	if live := b.service.records("live"); len(live) != 1 || live[0].ID != id.String() {
		t.Errorf("after the restart %+v is live", live)
	}
	b.y.finish(id, agentapi.ReasonClosed)
	b.clean()
	if past := b.past(); len(past) != 1 || past[0].How != "closed" {
		t.Errorf("history: %+v", past)
	}
	b.nobodyReset()
}

// TestHalfPreparedIsNoSession tests a session that one agent has prepared and the other does not
// know. Its client has connected directly since, and must not be reset.
func TestHalfPreparedIsNoSession(t *testing.T) {
	b := newBench(t)
	id := b.live()
	b.stop()
	b.x.mu.Lock()
	delete(b.x.sessions, id)
	b.x.mu.Unlock()
	b.y.mu.Lock()
	ss := b.y.sessions[id]
	ss.Phase = agentapi.PhasePrepared
	b.y.sessions[id] = ss
	b.y.mu.Unlock()
	b.net.Restart() // the network removes rules that nobody declares
	b.start()
	b.eventually("the agent has forgotten it", func() bool { return b.y.count() == 0 })
	b.clean()
	b.nobodyReset()
}

// TestSlowAgentKeepsItsSessions lets an agent answer late when the controller starts, as on a busy
// machine, and checks that its sessions wait for it.
func TestSlowAgentKeepsItsSessions(t *testing.T) {
	b := newBench(t)
	id := b.live()
	b.stop()
	open := b.y.gate("/v1/sessions")
	defer time.AfterFunc(askTimeout+time.Second, open).Stop()
	b.settle = time.Minute
	b.start()
	if live := b.service.records("live"); len(live) != 1 || live[0].ID != id.String() || live[0].State != StateLive {
		t.Errorf("after the restart %+v is live", live)
	}
	if b.service.takeoverResult.Dropped != 0 || b.x.count() != 1 {
		t.Errorf("%+v, the other agent has %d", b.service.takeoverResult, b.x.count())
	}
}

// TestSetUpWaitsForNews lets a connection arrive while an agent is known but has not announced its
// ports, and checks that the set-up waits for that.
func TestSetUpWaitsForNews(t *testing.T) {
	for _, restart := range []bool{true, false} {
		b := newBench(t)
		open := b.y.gate("/v1/status")
		defer open()
		record := b.agent("y").State().AgentRecord
		if restart {
			b.stop()
			b.start()
		} else {
			if err := b.service.agents.Remove(t.Context(), "y", true); err != nil {
				t.Fatal(err)
			}
			if err := b.service.agents.Add(t.Context(), record); err != nil {
				t.Fatal(err)
			}
		}
		_, held := b.syn(hostA)
		time.AfterFunc(100*time.Millisecond, open)
		if got := b.fate(held); got != "released" {
			t.Errorf("after a restart %v: the packet was %s: %+v", restart, got, b.past())
		}
	}
}
