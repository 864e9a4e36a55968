package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/match"
)

// TestClassFollowsMobileDevice has a class follow a device beside another one that gets packets
// without a class: at each place with room the device's packets are in the class's queue on its
// present way; where there is no room the class says so.
func TestClassFollowsMobileDevice(t *testing.T) {
	t.Parallel()
	w, dev1, dev2 := newTwoDevices(t, "pairmedia")
	w.post(classesPath, classes.ClassSpec{Name: "media", Priority: "0", MinRate: match.Text(fmt.Sprint(int(flowRate))), Flows: []match.Flow{{
		IPv4Src: match.Text(w.addr("server").String()), IPv4Dst: match.Text(dev1.Addr().String()), UDPDst: match.Text(fmt.Sprint(voicePort)),
	}}}, nil)
	w.stream("dev2", dev2, otherPort)
	media := w.stream(device, dev1, voicePort)
	for _, c := range []struct {
		edge  int
		state string
	}{{1, classes.StateActive}, {4, classes.StateActive}, {2, classes.StateDegraded}, {3, classes.StateActive}} {
		w.confine(dev1, c.edge)
		var info classes.Info
		w.must(testbed.Poll(t.Context(), fmt.Sprintf("the class at edge%d", c.edge), func() error {
			w.must(w.Get(t.Context(), classesPath+"/media", &info))
			if info.State != c.state {
				return fmt.Errorf("%+v", info)
			}
			return nil
		}))
		if c.state == classes.StateDegraded {
			if want := fmt.Sprintf("%d bit/s asked", int(flowRate)); !strings.Contains(info.Reason, want) {
				t.Errorf("at edge%d it does not say what is missing: %q", c.edge, info.Reason)
			}
			continue
		}
		w.entersQueue("media", fmt.Sprintf("edge%d", c.edge))
		w.arrives(media)
	}
}

// entersQueue waits until fifty packets more have gone through a class's queues at a switch.
func (w *world) entersQueue(class, sw string) {
	w.t.Helper()
	before := w.inQueue(class, sw)
	w.must(testbed.Poll(w.t.Context(), "packets in the class's queue at "+sw, func() error {
		if n := w.inQueue(class, sw) - before; n < 50 {
			return fmt.Errorf("%d packets more", n)
		}
		return nil
	}))
}
