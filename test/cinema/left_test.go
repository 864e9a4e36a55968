package cinema

import (
	"fmt"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

// testLeftChannelIsForgotten checks that Open vSwitch drops its cached decisions about a
// channel when the last viewer leaves, so that viewers who return do not meet one from the time
// when nobody watched.
func testLeftChannelIsForgotten(w *world, g, _ *rawGateway) {
	const before = "s3" // the gateway
	// No cached decision expires while the test waits.
	_, err := w.lab.Switch(before).Vsctl(w.t.Context(), "set", "Open_vSwitch", ".", "other_config:max-idle=3600000")
	w.must(err)
	for range 5 { // packets in flight meet one rule or the other
		v := g.join("c1")
		v.got(30)
		if len(w.cached(before)) == 0 {
			w.t.Fatal("nothing of the channel is cached")
		}
		v.leave()
		w.must(testbed.Poll(w.t.Context(), "nothing of the channel to be cached", func() error {
			if found := w.cached(before); len(found) > 0 {
				return fmt.Errorf("it has %q", found)
			}
			return nil
		}))
	}
}

// cached returns a switch's cached decisions about channels' packets.
func (w *world) cached(name string) []string {
	w.t.Helper()
	found, err := w.lab.Switch(name).Cached(w.t.Context(), "dst="+cinema.DefaultMedia.String())
	w.must(err)
	return found
}
