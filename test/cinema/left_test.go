package cinema

import (
	"fmt"

	"github.com/sluice-net/sluice/cinema/plugin"
	"github.com/sluice-net/sluice/lab/testbed"
)

// When the last viewer of a channel leaves, Open vSwitch forgets what it has cached of it: who comes
// back meets no decision of the time when nobody was there.
func testLeftChannelIsForgotten(w *world, g, _ *rawGateway) {
	const before = "s3" // the gateway
	// Nothing is forgotten because of its age while the test waits.
	_, err := w.lab.Switch(before).Vsctl(w.t.Context(), "set", "Open_vSwitch", ".", "other_config:max-idle=3600000")
	w.must(err)
	for range 5 { // what is under way meets one rule or the other
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

// cached are the decisions about channels' packets that a switch keeps.
func (w *world) cached(name string) []string {
	w.t.Helper()
	found, err := w.lab.Switch(name).Cached(w.t.Context(), "dst="+plugin.DefaultMedia.String())
	w.must(err)
	return found
}
