package cinema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// ownEgress returns a world in which the egress gateways are the test's own.
func ownEgress(t *testing.T, name string) *world {
	t.Helper()
	begin(t, "ffmpeg")
	top, roles := testbed.CinemaNetwork(name, link)
	roles["out1"], roles["out2"] = testbed.CinemaOwn, testbed.CinemaOwn
	return newWorld(t, top, roles)
}

// TestViewers runs the tests of viewers in an unchanged network in one lab, one after the
// other.
func TestViewers(t *testing.T) {
	w := ownEgress(t, "cinema-viewers")
	w.lightChannels(2)
	west, east := newRawGateway(w, "out1"), newRawGateway(w, "out2")
	for _, part := range []struct {
		name string
		run  func(w *world, west, east *rawGateway)
	}{
		{"OncePerLink", testOncePerLink},
		{"Bystanders", testBystanders},
		{"ChangeAtOnce", testChangeAtOnce},
		{"Delivered", testDelivered},
		{"LeftChannelIsForgotten", testLeftChannelIsForgotten},
	} {
		t.Run(part.name, func(t *testing.T) {
			in := *w
			in.t = t
			west.w, east.w = &in, &in
			part.run(&in, west, east)
			in.nothingLeft()
		})
	}
}

// testBystanders checks that viewers who change and leave continuously do not affect the
// others: none of these loses a packet, or gets one twice.
func testBystanders(w *world, west, east *rawGateway) {
	var bystanders []*rawViewer
	for range 2 {
		bystanders = append(bystanders, west.join("c1"), west.join("c2"), east.join("c1"), east.join("c2"))
	}
	w.allGot(bystanders, 10)
	restless := west.join("c1")
	for i := range 100 {
		now, next := fmt.Sprintf("c%d", i%2+1), fmt.Sprintf("c%d", (i+1)%2+1)
		w.must(restless.watch(w.t.Context(), next, now))
		w.must(restless.watch(w.t.Context(), next))
	}
	restless.got(1)
	restless.leave()
	w.allGot(bystanders, 10)
	for _, v := range bystanders {
		w.whole("a bystander", v.sum())
		v.leave()
	}
}

// testOncePerLink checks that a channel is on a link once, however many watch it behind the
// link, and not at all where nobody does.
func testOncePerLink(w *world, west, _ *rawGateway) {
	var all []*rawViewer
	for range 20 {
		all = append(all, west.join("c1"))
	}
	w.allGot(all, 10)
	w.oncePerLink(all[0])
	for _, v := range all {
		v.leave()
	}
}

// oncePerLink counts the packets on the links while one channel is watched behind one switch,
// and compares them with those that one of its viewers gets.
func (w *world) oncePerLink(v *rawViewer) {
	w.t.Helper()
	before, had := w.carried(), v.sum().packets
	v.got(300)
	after, got := w.carried(), v.sum().packets-had
	carrying := 0
	for port, now := range after {
		// The links also carry the channel's reports and the controller's probes, and packets
		// that arrive while the counters are read.
		n := now - before[port]
		if n > got*3/2+100 {
			w.t.Errorf("%s carried %d packets while a viewer of the channel got %d", port, n, got)
		}
		if n > got/2 {
			carrying++
		}
	}
	// The ring's shortest path from either ingress gateway to out1, at s3.
	if carrying < 1 || carrying > 2 {
		w.t.Errorf("%d links between switches carry the channel", carrying)
	}
}

// TestShorterWay checks that a channel that had to take a long path returns to the short one
// when that is up again, and that each packet arrives once.
func TestShorterWay(t *testing.T) {
	w := ownEgress(t, "cinema-shorter")
	w.lightChannels(1, "in2")
	v := newRawGateway(w, "out1").join("c1")
	v.got(20)
	links := func(want int) {
		t.Helper()
		w.must(testbed.Poll(t.Context(), "the way of the channel", func() error {
			if x := w.trees()["c1"]; len(x.Links) != want {
				return fmt.Errorf("it is %v, and not of %d links", x.Links, want)
			}
			return nil
		}))
	}
	links(1)
	w.must(w.lab.SetLink(t.Context(), "s2-s3", false))
	links(3)
	v.got(20)
	w.must(w.lab.SetLink(t.Context(), "s2-s3", true))
	w.linked()
	before := v.sum()
	links(1)
	v.got(100)
	after := v.sum()
	w.whole("the viewer", counts{packets: after.packets - before.packets, lost: after.lost - before.lost, doubled: after.doubled - before.doubled})
	v.leave()
	w.nothingLeft()
}

// TestControllerKilled kills the controller while viewers watch. What it has installed stays,
// and none of them loses a packet. When it is back, it has adopted everything.
func TestControllerKilled(t *testing.T) {
	w := ownEgress(t, "cinema-killed")
	w.lightChannels(2)
	west, east := newRawGateway(w, "out1"), newRawGateway(w, "out2")
	var all []*rawViewer
	for i := range 4 {
		channel := fmt.Sprintf("c%d", i%2+1)
		all = append(all, west.join(channel), east.join(channel))
	}
	zapper := west.join("c1") // it misses what is sent while it does not watch, so it is not one of them
	w.allGot(all, 50)
	before := map[string][]string{}
	for _, s := range w.lab.Topology().Switches {
		before[s.Name] = w.has(s.Name)
	}
	w.Controller().Kill()
	w.allGot(all, 100)
	w.must(w.StartController(t.Context()))
	w.must(testbed.Poll(t.Context(), "the viewer to change", func() error { return zapper.watch(t.Context(), "c2", "c1") }))
	w.must(zapper.watch(t.Context(), "c2"))
	w.must(zapper.watch(t.Context(), "c1", "c2"))
	w.must(zapper.watch(t.Context(), "c1"))
	zapper.got(50)
	w.allGot(all, 50)
	for name, had := range before {
		if now := w.has(name); !slices.Equal(now, had) {
			t.Errorf("%s had %v, and has %v", name, had, now)
		}
	}
	for _, v := range all {
		w.whole("a viewer", v.sum())
		v.leave()
	}
	zapper.leave()
	w.nothingLeft()
}

// carried returns how many packets have left the switches towards other switches, by port.
func (w *world) carried() map[string]int {
	w.t.Helper()
	out := map[string]int{}
	for _, l := range w.betweenSwitches() {
		for _, end := range []string{l.A.Node, l.B.Node} {
			port, err := w.lab.Switch(end).Port(l.Name)
			w.must(err)
			text, err := w.lab.Switch(end).Ofctl(w.t.Context(), "dump-ports", strconv.Itoa(port))
			w.must(err)
			_, sent, _ := strings.Cut(text, "tx pkts=")
			digits, _, _ := strings.Cut(sent, ",")
			n, err := strconv.Atoi(digits)
			w.must(err)
			out[end+" "+l.Name] = n
		}
	}
	return out
}

// betweenSwitches returns the links between switches.
func (w *world) betweenSwitches() (all []lab.Link) {
	for _, l := range w.lab.Topology().Links {
		if strings.HasPrefix(l.A.Node, "s") && strings.HasPrefix(l.B.Node, "s") {
			all = append(all, l)
		}
	}
	return all
}

// linked waits until the controller knows all links between switches, in both directions.
func (w *world) linked() {
	w.t.Helper()
	all := 2 * len(w.betweenSwitches())
	w.must(testbed.Poll(w.t.Context(), "the links", func() error {
		n, err := w.Links(w.t.Context())
		if err == nil && n != all {
			err = fmt.Errorf("there are %d of %d", n, all)
		}
		return err
	}))
}
