package network

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// TestFlowsLeaveInTheOrderOfTheirChanges checks that a flow which is written and deleted by two
// goroutines at once ends up on the switch as in the ledger, because its messages are sent in the
// order of its changes.
func TestFlowsLeaveInTheOrderOfTheirChanges(t *testing.T) {
	n, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := silent(t, n)
	s.dpid = 1
	f := &forward.Flow{Key: forward.Key{Src: openflow.MAC{2, 1}, Dst: openflow.MAC{2, 2}}}
	h := topology.Hop{Switch: 1, In: 1, Out: 2}
	const rounds = 20_000
	var wg sync.WaitGroup
	wg.Go(func() {
		for range rounds {
			n.forwarding.writeHop(f, h, s)
		}
	})
	wg.Go(func() {
		for range rounds {
			n.forwarding.deleteFlow(s, n.forwarding.compact(f.Key, h), s)
		}
	})
	wg.Wait()
	queued := s.ch.out.lockControl()
	s.ch.out.unlockControl(nil)
	there := false
	for b := queued; len(b) > 0; b = b[binary.BigEndian.Uint16(b[2:]):] {
		var m openflow.FlowMod
		if err := m.Decode(b[:binary.BigEndian.Uint16(b[2:])]); err != nil {
			t.Fatal(err)
		}
		if adds := m.Command == openflow.FlowAdd; adds == there {
			t.Fatalf("%v of a rule that is there: %v", m.Command, there)
		}
		there = !there
	}
	if _, known := s.flows.Get(n.forwarding.compact(f.Key, h)); known != there {
		t.Errorf("the ledger has it: %v, the switch: %v", known, there)
	}
}
