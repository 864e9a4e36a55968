package cinema

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// TestLinkMACs checks that with link addresses every switch forwards a channel from the address
// of the link, and that viewers get all of it.
func TestLinkMACs(t *testing.T) {
	begin(t, "ffmpeg")
	top, roles := testbed.CinemaNetwork("cinema-macs", link)
	roles["out1"], roles["out2"] = testbed.CinemaOwn, testbed.CinemaOwn
	w := newWorldWith(t, top, roles, "cinema: {enabled: true, link_macs: true}\n")
	w.lightChannels(1)
	all := []*rawViewer{newRawGateway(w, "out1").join("c1"), newRawGateway(w, "out2").join("c1")}
	for _, v := range all {
		v.got(100)
		w.whole("a viewer", v.sum())
	}
	onward := 0
	for _, s := range top.Switches {
		for rule := range strings.Lines(w.ofctl(s.Name, "dump-flows")) {
			if strings.Contains(rule, "tp_dst=5004") {
				onward += w.sendsFromLinks(s.Name, rule)
			}
		}
	}
	if onward == 0 {
		t.Error("no switch sends the channel on")
	}
}

// sendsFromLinks returns over how many links a rule forwards packets, and fails the test if it
// does so from another address than the link's.
func (w *world) sendsFromLinks(name, rule string) (links int) {
	w.t.Helper()
	_, actions, _ := strings.Cut(rule, "actions=")
	actions = strings.TrimSpace(actions)
	source := ""
	for action := range strings.SplitSeq(actions, ",") {
		if set, is := strings.CutPrefix(action, "set_field:"); is {
			source, _, _ = strings.Cut(set, "->")
		}
		var port uint32
		if n, _ := fmt.Sscanf(action, "output:%d", &port); n == 1 {
			links++
			at := network.PortRef{Switch: openflow.DatapathID(w.lab.Switch(name).DPID()), Port: port}
			if want := tree.LinkMAC(at).String(); source != want {
				w.t.Errorf("%s sends to port %d from %q, not %s: %s", name, port, source, want, actions)
			}
		}
	}
	return links
}
