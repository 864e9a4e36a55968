package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cinema/plugin"
	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/lab"
)

// ownEgress is the network in which the egress gateways are the test's own.
func ownEgress(t *testing.T, name string) *world {
	t.Helper()
	needs(t, "ffmpeg")
	top, roles := stage.CinemaNetwork(name, link)
	roles["out1"], roles["out2"] = stage.CinemaOwn, stage.CinemaOwn
	return newWorld(t, top, roles)
}

// Viewers of whom some change and leave all the time take nothing from the others: none of
// these loses a packet, or gets one twice.
func TestBystanders(t *testing.T) {
	w := ownEgress(t, "cinema-bystanders")
	w.channels(2)
	west, east := newRawGateway(w, "out1"), newRawGateway(w, "out2")
	var bystanders []*rawViewer
	for range 10 {
		bystanders = append(bystanders, west.join("c1"), west.join("c2"), east.join("c1"), east.join("c2"))
	}
	for _, v := range bystanders {
		v.got(t, 10)
	}
	restless := west.join("c1")
	for i := range 100 {
		now, next := fmt.Sprintf("c%d", i%2+1), fmt.Sprintf("c%d", (i+1)%2+1)
		w.must(restless.watch(t.Context(), next, now))
		w.must(restless.watch(t.Context(), next))
	}
	restless.got(t, 1)
	restless.leave()
	for _, v := range bystanders {
		v.got(t, 10)
		if s := v.sum(); s.lost+s.doubled > 0 {
			t.Errorf("a bystander lost %d of %d packets and got %d twice", s.lost, s.packets, s.doubled)
		}
		v.leave()
	}
	w.nothingLeft()
}

// A channel is on a link once, however many watch it behind that, and not at all where
// nobody does.
func TestOncePerLink(t *testing.T) {
	w := ownEgress(t, "cinema-once")
	w.channels(1)
	gateway := newRawGateway(w, "out1")
	var all []*rawViewer
	for range 20 {
		all = append(all, gateway.join("c1"))
	}
	all[0].got(t, 10)
	w.oncePerLink()
	for _, v := range all {
		v.leave()
	}
	w.nothingLeft()
}

// oncePerLink counts what the links carry while one channel is watched behind one switch.
func (w *world) oncePerLink() {
	w.t.Helper()
	before := w.carried()
	pause.For(3*time.Second, "the channel is carried")
	carrying := 0
	for port, now := range w.carried() {
		rate := now.rate(before[port])
		if rate > 1.3*bitRate {
			w.t.Errorf("%s carries %.0f bit/s of a channel of %d", port, rate, bitRate)
		}
		if rate > bitRate/3 {
			carrying++
		}
	}
	// The ring's shortest way from either ingress gateway to out1, at s3.
	if carrying < 1 || carrying > 2 {
		w.t.Errorf("%d links between switches carry the channel", carrying)
	}
}

// A link of the tree that fails is gone around.
func TestLinkCut(t *testing.T) {
	w := ownEgress(t, "cinema-cut")
	w.channels(1)
	v := newRawGateway(w, "out1").join("c1")
	v.got(t, 50)
	for _, l := range []string{"s1-s2", "s2-s3", "s3-s4", "s4-s1"} {
		w.must(w.lab.SetLink(t.Context(), l, false))
		v.got(t, 50)
		w.must(w.lab.SetLink(t.Context(), l, true))
		w.linked()
	}
	t.Logf("longest silence: %v; %d of %d packets lost", v.sum().longestSilence, v.sum().lost, v.sum().packets)
	v.leave()
	w.nothingLeft()
}

// A channel that had to take a long way is on the short one again when that is back, and each
// packet comes once.
func TestShorterWay(t *testing.T) {
	w := ownEgress(t, "cinema-shorter")
	w.must(w.AddChannel(t.Context(), plugin.ChannelSpec{Name: "c1", Number: 1, Source: "test:", BitRate: bitRate, Ingress: "in2"}))
	w.must(w.WaitOnAir(t.Context()))
	v := newRawGateway(w, "out1").join("c1")
	v.got(t, 20)
	links := func(want int) {
		t.Helper()
		w.must(stage.Poll(t.Context(), "the way of the channel", func() error {
			if x := w.trees()["c1"]; len(x.Links) != want {
				return fmt.Errorf("it is %v, and not of %d links", x.Links, want)
			}
			return nil
		}))
	}
	links(1)
	w.must(w.lab.SetLink(t.Context(), "s2-s3", false))
	links(3)
	v.got(t, 20)
	w.must(w.lab.SetLink(t.Context(), "s2-s3", true))
	w.linked()
	before := v.sum()
	links(1)
	v.got(t, 100)
	if s := v.sum(); s.lost > before.lost || s.doubled > before.doubled {
		t.Errorf("of %d packets %d were lost, and %d came twice", s.packets-before.packets, s.lost-before.lost, s.doubled-before.doubled)
	}
	v.leave()
	w.nothingLeft()
}

// What the controller has put into the switches stays when it is killed while fifty watch:
// none of them loses a packet. When it comes back, all is its own again.
func TestControllerKilled(t *testing.T) {
	w := ownEgress(t, "cinema-killed")
	w.channels(2)
	west, east := newRawGateway(w, "out1"), newRawGateway(w, "out2")
	var all []*rawViewer
	for i := range 25 {
		channel := fmt.Sprintf("c%d", i%2+1)
		all = append(all, west.join(channel), east.join(channel))
	}
	zapper := west.join("c1") // misses what is sent while it does not watch: it is not one of the fifty
	w.allGot(all, 50)
	before := map[string][]string{}
	for _, s := range w.lab.Topology().Switches {
		before[s.Name] = w.has(s.Name)
	}
	w.Controller().Kill()
	w.allGot(all, 200)
	w.must(w.StartController(t.Context()))
	w.must(stage.Poll(t.Context(), "the viewer to change", func() error { return zapper.watch(t.Context(), "c2", "c1") }))
	w.must(zapper.watch(t.Context(), "c2"))
	w.must(zapper.watch(t.Context(), "c1", "c2"))
	w.must(zapper.watch(t.Context(), "c1"))
	zapper.got(t, 50)
	w.allGot(all, 50)
	for name, had := range before {
		if now := w.has(name); !slices.Equal(now, had) {
			t.Errorf("%s had %v, and has %v", name, had, now)
		}
	}
	for _, v := range all {
		if s := v.sum(); s.lost > 0 {
			t.Errorf("%d of %d packets were lost", s.lost, s.packets)
		}
		v.leave()
	}
	zapper.leave()
	w.nothingLeft()
}

// reading is how many bytes had left by a port at a time.
type reading struct {
	bytes int
	at    time.Time
}

// rate is how much has left since an earlier reading, in bit/s.
func (r reading) rate(before reading) float64 {
	return float64(r.bytes-before.bytes) * 8 / r.at.Sub(before.at).Seconds()
}

// carried is how many bytes have left the switches towards other switches, by port.
func (w *world) carried() map[string]reading {
	w.t.Helper()
	out := map[string]reading{}
	for _, l := range w.betweenSwitches() {
		for _, end := range []string{l.A.Node, l.B.Node} {
			port, err := w.lab.Switch(end).Port(l.Name)
			w.must(err)
			text, err := w.lab.Switch(end).Ofctl(w.t.Context(), "dump-ports", strconv.Itoa(port))
			w.must(err)
			_, sent, _ := strings.Cut(text, "tx pkts=")
			_, sent, _ = strings.Cut(sent, "bytes=")
			digits, _, _ := strings.Cut(sent, ",")
			n, err := strconv.Atoi(digits)
			w.must(err)
			out[end+" "+l.Name] = reading{n, time.Now()}
		}
	}
	return out
}

// betweenSwitches are the links that join switches.
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
	w.must(stage.Poll(w.t.Context(), "the links", func() error {
		n, err := w.Links(w.t.Context())
		if err == nil && n != all {
			err = fmt.Errorf("there are %d of %d", n, all)
		}
		return err
	}))
}
