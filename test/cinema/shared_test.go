package cinema

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// TestGatewayCopies checks that a switch has one bucket of a channel for a gateway that copies
// to its viewers itself, however many they are.
func TestGatewayCopies(t *testing.T) {
	begin(t, "ffmpeg")
	top, roles := testbed.CinemaNetwork("cinema-shared", link)
	w := newWorldOf(t, testbed.Options{Lab: lab.New(t, top), Gateways: roles, EgressBuckets: "gateway"})
	w.lightChannels(2)
	audience, err := testbed.NewAudience(w.lab.Host(testbed.Viewer), w.PublicURL("out1"))
	w.must(err)
	leave := sync.OnceFunc(audience.Close)
	defer leave()
	for i := range 10 {
		w.must(audience.Join(t.Context(), fmt.Sprintf("c%d", i%2+1)))
	}
	groups := w.ofctl("s3", "dump-groups")
	if n := strings.Count(groups, "bucket="); n != 2 {
		t.Errorf("%d buckets for 10 viewers of two channels: %s", n, groups)
	}
	before := audience.Heard()
	w.must(testbed.Poll(t.Context(), "packets for all", func() error {
		if n := audience.Heard().Packets - before.Packets; n < 10*100 {
			return fmt.Errorf("%d packets", n)
		}
		return nil
	}))
	leave()
	w.nothingLeft()
}
