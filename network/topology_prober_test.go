package network

import (
	"slices"
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

// TestProbeQueues checks that a probe uses the queue of its port, if there is one, until the queue
// is unset or the switch disconnects.
func TestProbeQueues(t *testing.T) {
	n := &Network{}
	a, b := PortRef{Switch: 1, Port: 2}, PortRef{Switch: 2, Port: 2}
	plain, queued := []openflow.Action{openflow.Output(2)}, []openflow.Action{openflow.SetQueue(7), openflow.Output(2)}
	n.SetProbeQueue(a, 7)
	for i, step := range []struct {
		do   func()
		a, b []openflow.Action
	}{
		{func() {}, queued, plain},
		{func() { n.SetProbeQueue(b, 7) }, queued, queued},
		{func() { n.SetProbeQueue(a, 0) }, plain, queued},
		{func() { n.linkProber.queues.forget(1) }, plain, queued},
		{func() { n.linkProber.queues.forget(2) }, plain, plain},
	} {
		step.do()
		if got := n.linkProber.queues.output(a); !slices.Equal(got, step.a) {
			t.Errorf("step %d: %v by %v, want %v", i, a, got, step.a)
		}
		if got := n.linkProber.queues.output(b); !slices.Equal(got, step.b) {
			t.Errorf("step %d: %v by %v, want %v", i, b, got, step.b)
		}
	}
}
