package sos

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestSlowEnd lets one agent close a session while the other takes its time, as one without
// processor time does. It checks that the slow one is not told to reset its end host.
func TestSlowEnd(t *testing.T) {
	b := newBench(t)
	id := b.live()
	b.x.finish(id, agentapi.ReasonClosed)
	told := b.y.gate("/v1/sessions/" + id.String())
	defer told()
	select {
	case <-b.y.waits:
		t.Fatal("the other agent was told to end its side")
	case <-time.After(secondEndTimeout + 500*time.Millisecond):
	}
	b.y.finish(id, agentapi.ReasonClosed)
	b.clean()
	if past := b.past(); len(past) != 1 || past[0].How != "closed" {
		t.Errorf("history: %+v", past)
	}
}
