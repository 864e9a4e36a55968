package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cinema/plugin"
	"github.com/sluice-net/sluice/experiment/stage"
)

// When the last viewer of a channel leaves, Open vSwitch forgets what it has cached of it: who comes
// back meets no decision of the time when nobody was there.
func TestLeftChannelIsForgotten(t *testing.T) {
	w := ownEgress(t, "cinema-left")
	w.must(w.AddChannel(t.Context(), plugin.ChannelSpec{Name: "c1", Number: 1, Source: "test:", BitRate: bitRate, Ingress: "in1"}))
	w.must(w.WaitOnAir(t.Context()))
	v := newRawGateway(w, "out1").join("c1")
	v.got(t, 50)
	const before = "s3" // the gateway
	if len(w.cached(before)) == 0 {
		t.Fatal("nothing of the channel is cached")
	}
	v.leave()
	left := time.Now()
	w.must(stage.Poll(t.Context(), "nothing of the channel to be cached", func() error {
		if found := w.cached(before); len(found) > 0 {
			return fmt.Errorf("it has %q", found)
		}
		return nil
	}))
	if took := time.Since(left); took > 8*time.Second {
		t.Errorf("what is cached went after %v: by its age, not with the rules", took)
	}
	w.nothingLeft()
}

// cached are the decisions about channels' packets that a switch keeps.
func (w *world) cached(name string) (found []string) {
	w.t.Helper()
	flows, err := w.lab.Switch(name).Appctl(w.t.Context(), "dpctl/dump-flows")
	w.must(err)
	for line := range strings.Lines(flows) {
		if strings.Contains(line, "dst="+plugin.DefaultMedia.String()) {
			found = append(found, line)
		}
	}
	return found
}
