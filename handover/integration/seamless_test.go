package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/plugin"
	"github.com/sluice-net/sluice/internal/race"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
)

// TestSeamlessDevice is the vertical handover: a device with two interfaces and the
// daemon moves between them, 50 times, under a TCP download of 100 Mbit/s and a
// stream of 1,000 packets a second. Nothing is lost and nothing comes twice, and TCP
// has no more weak moments than without moves, but for those in which the heartbeat of a
// core shows that it stood still.
func TestSeamlessDevice(t *testing.T) {
	if race.Enabled {
		t.Skip("what a device loses is measured on the program as it is used")
	}
	w := newWorld(t, lab.MobilityOptions{})
	binary := selfbuild.Binary(t)
	w.steadfast = true
	w.put("classes/seamless", plugin.ClassSpec{Policy: "seamless"})
	before := w.hostState("dev1")
	d := w.device(binary, "dev1", "seamless", 2)

	calm := w.download("dev1", 100, 5)
	quiet := d.stream(1000)
	without := calm.wait(20 * time.Second)
	t.Logf("without handovers: TCP %v; UDP %v", without, quiet.stop())
	_, calmLow, _ := without.median()

	r, tcp := d.toAndFro()
	if tcp.err != "" {
		t.Errorf("the download was broken off: %s", tcp.err)
	}
	requireNoLoss(t, r)
	_, low, _ := tcp.median()
	if allowed := calmLow*len(tcp.rates)/max(len(without.rates), 1) + 2*len(r.stalls); low > allowed {
		t.Errorf("%d intervals of TCP are below half of the median; from the machine alone there may be %d", low, allowed)
	}
	w.compareRules()
	w.leaked()
	d.end()
	if after := w.hostState("dev1"); after != before {
		t.Errorf("the daemon has left the device changed:\n%s\nbefore:\n%s", after, before)
	}
}

// toAndFro moves a device between its two interfaces under a download and a stream.
func (d *device) toAndFro() (report, goodput) {
	const every = 400 * time.Millisecond
	t := d.w.t
	t.Helper()
	loaded := d.w.download(d.host, 100, 3+int(handovers*every/time.Second))
	s := d.stream(1000)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var longest time.Duration
	var moved []time.Time
	for n := range handovers {
		<-tick.C
		began := time.Now()
		moved = append(moved, began)
		if _, err := d.move(fmt.Sprintf("eth%d", (n+1)%2)); err != nil {
			t.Fatalf("move %d: %v", n, err)
		}
		longest = max(longest, time.Since(began))
	}
	r, tcp := s.stop(), loaded.wait(40*time.Second)
	t.Logf("%d handovers, the longest took %v: TCP %v; UDP %v", handovers, longest.Round(time.Millisecond), tcp, r)
	since := func(at time.Time) string {
		n, _ := slices.BinarySearchFunc(moved, at, time.Time.Compare)
		return fmt.Sprintf("%v after move %d began", at.Sub(moved[max(n-1, 0)]), n-1)
	}
	for _, at := range r.again {
		t.Logf("doubled: %s", since(at))
	}
	for _, g := range r.gaps {
		t.Logf("%d lost, sent %s", g.packets, since(g.at))
	}
	return r, tcp
}

// hostState is what a host has of interfaces, addresses and routes.
func (w *world) hostState(host string) string {
	return w.run(host, "ip", "-4", "-br", "addr") + w.run(host, "ip", "-4", "route")
}

// TestHorizontalHandover is a device with one interface whose cable goes from one
// edge switch to another and back, under a download and a stream. Connections stay;
// what is lost is what was sent while it had no link, or no lease.
func TestHorizontalHandover(t *testing.T) {
	const moves = 4
	w := newWorld(t, lab.MobilityOptions{Interfaces: 1})
	binary := selfbuild.Binary(t)
	w.put("classes/saving", plugin.ClassSpec{Policy: "saving"})
	d := w.device(binary, "dev1", "saving", 1)
	tcp := w.download("dev1", 20, 4+3*moves)
	s := d.stream(1000)
	for n := range moves {
		edge := w.domain.Edges[[]int{2, 0}[n%2]]
		came := s.count()
		began := time.Now()
		if err := w.lab.MoveLink(t.Context(), "dev1-eth0", edge); err != nil {
			t.Fatal(err)
		}
		linked := time.Since(began)
		w.eventually("packets come to "+edge, func() bool {
			return s.count() > came+500 && w.handovers("dev1", 1)[0].To.Port.PortRef == w.port("dev1-eth0")
		})
		rec := w.handovers("dev1", 1)[0]
		t.Logf("to %s: the cable was moved within %v; T_a %v T_d %v T_f %v T_e %v, T_c %v", edge, linked.Round(time.Millisecond),
			rec.Parts.Ta, rec.Parts.Td, rec.Parts.Tf, rec.Parts.Te, rec.Parts.Tc)
	}
	r, g := s.stop(), tcp.wait(60*time.Second)
	t.Logf("TCP %v; UDP %v", g, r)
	if g.err != "" {
		t.Errorf("the download was broken off: %s", g.err)
	}
	if len(r.gaps) > 3*moves || r.doubled > 0 {
		t.Errorf("%d moves made %d gaps and doubled %d packets", moves, len(r.gaps), r.doubled)
	}
	w.compareRules()
	w.leaked()
}
