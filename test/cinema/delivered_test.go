package cinema

import (
	"fmt"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

// testDelivered checks that the API's count of delivered packets is what the viewer has
// received, also while others change at the same group.
func testDelivered(w *world, gateway, _ *rawGateway) {
	t := w.t
	v, other := gateway.join("c1"), gateway.join("c2")
	delivered := func() uint64 {
		t.Helper()
		var all []cinema.ViewerInfo
		w.must(w.Get(t.Context(), "/api/v1/cinema/viewers", &all))
		for _, x := range all {
			if x.ID == v.id {
				return x.Delivered
			}
		}
		return 0
	}
	var counted uint64
	for round := range 3 {
		want := v.sum().packets + 100
		w.must(testbed.Poll(t.Context(), "packets to be delivered", func() error {
			if counted = delivered(); counted < uint64(want)*3/4 || v.sum().packets < want {
				return fmt.Errorf("%d are said to be, %d have come", counted, v.sum().packets)
			}
			return nil
		}))
		next := []string{"c1", "c2"}[round%2]
		w.must(other.watch(t.Context(), next))
	}
	got := v.sum().packets // RTP only; the switch has also copied RTCP, and more packets since
	t.Logf("%d packets are said to be delivered, %d have come", counted, got)
	if counted > uint64(got)*11/10+100 {
		t.Errorf("%d packets are said to be delivered, %d have come", counted, got)
	}
	v.leave()
	other.leave()
}
