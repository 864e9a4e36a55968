package pairs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/qos/latency"
	"github.com/sluice-net/sluice/qos/match"
)

// TestClassFollowsMobileDevice has a class follow a device: at each place with room it has
// its queues on the device's present way, and holds beside one that sends too much to
// another device at the same edge; where there is no room it says so.
func TestClassFollowsMobileDevice(t *testing.T) {
	w, dev1, dev2 := newTwoDevices(t, "pairmedia")
	w.post(classesPath, latency.ClassSpec{Name: "media", Priority: "0", MinRate: match.Text(fmt.Sprint(int(flowRate))), Flows: []match.Flow{{
		IPv4Src: match.Text(w.addr("server").String()), IPv4Dst: match.Text(dev1.Addr().String()), UDPDst: match.Text(fmt.Sprint(voicePort)),
	}}}, nil)
	w.stream("dev2", dev2, otherPort, otherPPS)
	media := w.stream(device, dev1, voicePort, voicePPS)
	for _, c := range []struct {
		edge  int
		state string
	}{{1, latency.StateActive}, {4, latency.StateActive}, {2, latency.StateDegraded}, {3, latency.StateActive}} {
		w.confine(dev1, c.edge)
		edge := fmt.Sprintf("%016x", w.lab.Switch(fmt.Sprintf("edge%d", c.edge)).DPID())
		var info latency.Info
		w.must(stage.Poll(t.Context(), fmt.Sprintf("the class at edge%d", c.edge), func() error {
			w.must(w.Get(t.Context(), classesPath+"/media", &info))
			if info.State != c.state {
				return fmt.Errorf("%+v", info)
			}
			if c.state == latency.StateDegraded {
				return nil
			}
			return w.queued("media", edge)
		}))
		if c.state == latency.StateDegraded {
			if want := fmt.Sprintf("%d bit/s asked", int(flowRate)); !strings.Contains(info.Reason, want) {
				t.Errorf("at edge%d it does not say what is missing: %q", c.edge, info.Reason)
			}
			continue
		}
		w.arrives(media, c.edge)
	}
}

// queued says why a class's packets do not go through a queue at a switch.
func (w *world) queued(class, sw string) error {
	w.t.Helper()
	var s latency.Stats
	w.must(w.Get(w.t.Context(), classesPath+"/"+class+"/stats", &s))
	for _, q := range s.Queues {
		if q.Switch == sw && q.PacketRate > voicePPS/2 {
			return nil
		}
	}
	return fmt.Errorf("no queue at %s carries its packets: %+v", sw, s.Queues)
}
