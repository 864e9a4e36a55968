package plugin

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/sos/agentapi"
)

// An agent remembers only so many ends; after a break in its events one may be
// missing. The session is over all the same, and its rules go.
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
		ss := b.service.byID[id]
		return ss != nil && ss.state == StateLive
	})
	for _, a := range []*fakeAgent{b.x, b.y} {
		a.mu.Lock()
		delete(a.sessions, id)
		a.seq += 2000
		other := agentapi.SessionRecord{Seq: a.seq, Reason: agentapi.ReasonClosed}
		other.ID = agentapi.NewSessionID()
		for c := range a.streams {
			c <- agentapi.Event{Instance: a.instance, Status: a.load(), Ended: []agentapi.SessionRecord{other}}
		}
		a.mu.Unlock()
	}
	b.eventually("no rule is left", func() bool { return len(b.net.kept()) == 0 })
}

// brokenEvents is an agent that is well but for its event stream.
type brokenEvents struct {
	agentClient
	asked atomic.Int32
}

func (c *brokenEvents) Watch(context.Context, func(agentapi.Event)) error {
	c.asked.Add(1)
	return errors.New("broken")
}

func (c *brokenEvents) Status(context.Context) (agentapi.Status, error) {
	return agentapi.Status{}, nil
}
func (c *brokenEvents) Close() {}

// A stream that breaks at once is not asked for in a tight loop.
func TestBrokenEvents(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	c := &brokenEvents{}
	b.service.watchAgent(ctx, &agent{client: c, record: AgentRecord{Name: "z"}})
	if n := c.asked.Load(); n > 20 {
		t.Errorf("asked %d times in half a second", n)
	}
}
