package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cinema/plugin"
	"github.com/sluice-net/sluice/experiment/stage"
)

// When the last viewer of a channel leaves, Open vSwitch forgets what it has cached of it: who comes
// back meets no decision of the time when nobody was there.
func TestLeftChannelIsForgotten(t *testing.T) {
	w := ownEgress(t, "cinema-left")
	w.channels(1)
	g := newRawGateway(w, "out1")
	const before = "s3" // the gateway
	for range 5 {       // what is under way meets one rule or the other
		v := g.join("c1")
		v.got(t, 50)
		if len(w.cached(before)) == 0 {
			t.Fatal("nothing of the channel is cached")
		}
		v.leave()
		left := time.Now()
		var last []string
		w.must(stage.Poll(t.Context(), "nothing of the channel to be cached", func() error {
			if found := w.cached(before); len(found) > 0 {
				last = found
				return fmt.Errorf("it has %q", found)
			}
			return nil
		}))
		if took := time.Since(left); took > 8*time.Second {
			t.Errorf("what is cached went after %v: by its age, not with the rules; it was %q", took, last)
		}
	}
	w.nothingLeft()
}

// cached are the decisions about channels' packets that a switch keeps.
func (w *world) cached(name string) []string {
	w.t.Helper()
	found, err := w.lab.Switch(name).Cached(w.t.Context(), "dst="+plugin.DefaultMedia.String())
	w.must(err)
	return found
}
