package cinema

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestSwitchReconnected cuts a switch's connection to the controller until that notices. Nobody
// loses a packet then, or when the switch is back. It goes on copying with the same rules and
// groups, and traffic through it to others is rerouted around it meanwhile.
func TestSwitchReconnected(t *testing.T) {
	w := ownEgress(t, "cinema-reconnected")
	w.lightChannels(2, "in1", "in2")
	west, east := newRawGateway(w, "out1"), newRawGateway(w, "out2")
	// The links away from where each channel enters.
	all := []*rawViewer{west.join("c2"), west.join("c2"), east.join("c1"), east.join("c1")}
	w.allGot(all, 20)
	for _, name := range []string{"s3", "s4"} {
		before := w.has(name)
		w.away(name, all, func(when string) {
			if now := w.has(name); !slices.Equal(now, before) {
				t.Errorf("%s had %v and has %s %v", name, before, when, now)
			}
		})
	}
	all = append(all, west.join("c1"), east.join("c2")) // across the ring
	w.away("s4", all, func(string) {})
	for _, v := range all {
		s := v.sum()
		s.doubled = 0 // a disconnected switch goes on beside the other path around the ring
		w.whole("a viewer", s)
	}
	w.must(all[0].watch(t.Context(), "c1", "c2"))
	w.must(all[0].watch(t.Context(), "c1"))
	for _, v := range all {
		v.leave()
	}
	w.nothingLeft()
}

// away disconnects a switch from the controller for a while. It calls look during that time,
// and when the switch is back.
func (w *world) away(name string, all []*rawViewer, look func(when string)) {
	w.t.Helper()
	followed := w.follow("network.switch.")
	is := fmt.Sprintf("%016x", w.lab.Switch(name).DPID())
	began := time.Now()
	w.controlledBy(name, "tcp:127.0.0.1:1")
	followed.first("network.switch.down", is, began)
	w.allGot(all, 50)
	look("without a controller")
	w.controlledBy(name, "tcp:"+w.lab.ControllerAddr().String())
	followed.first("network.switch.up", is, began)
	w.linked()
	w.allGot(all, 50)
	look("after all")
}

// controlledBy sets the controller of a switch.
func (w *world) controlledBy(name, controller string) {
	w.t.Helper()
	_, err := w.lab.Switch(name).Vsctl(w.t.Context(), "set-controller", "br0", controller)
	w.must(err)
}
