package handover

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// longOverlap is how long both places of a device are served in a move whose packets are counted:
// so long that a busy machine has ended the move before.
const longOverlap = "2s"

// TestSeamlessDevice tests the vertical handover: a device with two interfaces and the daemon
// moves between them. No packet is lost, its TCP connection survives, and the daemon restores the
// device. How long a move takes, how TCP reacts and that no packet arrives twice are claims of the
// experiments handover-policies and handover-moves.
func TestSeamlessDevice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.MobilityOptions{})
	w.steadfast, w.mobile = true, "datapath: {overlap: 4s}\n"
	w.put("classes/seamless", handover.ClassSpec{Policy: "seamless", Overlap: longOverlap})
	before := w.hostState("dev1")
	d := w.device(selfbuild.Binary(t), "dev1", "seamless", 2)
	conn := w.connection("dev1")
	s := d.stream()
	for n := range 4 {
		to := fmt.Sprintf("eth%d", (n+1)%2)
		s.goesOn("packets arrive before the move to " + to)
		if _, err := d.move(to); err != nil {
			t.Fatalf("move to %s: %v", to, err)
		}
		conn.works("in the move to " + to)
		w.eventually("the move is over", func() bool { return w.servedBy("dev1", w.port("dev1-"+to)) })
		conn.works("after the move to " + to)
	}
	r := s.stop()
	t.Logf("%v", r)
	requireNoLoss(t, r)
	w.compareRules()
	w.leaked()
	d.end()
	if after := w.hostState("dev1"); after != before {
		t.Errorf("the daemon has left the device changed:\n%s\nbefore:\n%s", after, before)
	}
}

// hostState returns a host's interfaces, addresses and routes.
func (w *world) hostState(host string) string {
	return w.run(host, "ip", "-4", "-br", "addr") + w.run(host, "ip", "-4", "route")
}

// TestSeamlessNetwork moves a device with an interface at each of four edges: every packet arrives
// by one of them or by both. The device's own part, which delivers each packet once, has a test of
// its own.
func TestSeamlessNetwork(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{Cross: true})
	w.put("classes/seamless", handover.ClassSpec{Policy: "seamless", Trigger: "open", Overlap: longOverlap})
	p := newPhone(1, 4)
	w.register("seamless", p)
	if err := p.join(t.Context(), radios[0], p.macs[0]); err != nil {
		t.Fatal(err)
	}
	s := w.streamToRadios(radios, netip.AddrPortFrom(p.ip, 5000))
	bicast := 0
	for _, to := range []int{1, 3, 2, 0} {
		s.goesOn("packets arrive")
		if err := p.move(t.Context(), radios[to], p.macs[to]); err != nil {
			t.Fatal(err)
		}
		w.eventually("the old place is given up", func() bool { return w.done(p.id, radios[to]) && !w.anyBicast([]*phone{p}) })
		rec := w.handovers(p.id, 1)[0]
		if rec.Bicast {
			bicast++
		} else if rec.Fallback == "" {
			t.Errorf("no bicast, and no reason: %+v", rec)
		}
	}
	r := s.stop()
	t.Logf("%d moves with bicast: %v", bicast, r)
	requireNoLoss(t, r)
	if bicast == 0 || r.copies == 0 {
		t.Errorf("it was never served at two places: %d moves with bicast, %d copies", bicast, r.copies)
	}
	w.compareRules()
}

// TestHorizontalHandover moves a device with the daemon and one interface whose cable goes from
// one edge switch to another and back. Its connection survives. Packets that were sent while it
// had no link, or no lease, may be lost.
func TestHorizontalHandover(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.MobilityOptions{Interfaces: 1})
	w.put("classes/saving", handover.ClassSpec{Policy: "saving"})
	d := w.device(selfbuild.Binary(t), "dev1", "saving", 1)
	conn, s := w.connection("dev1"), d.stream()
	for _, edge := range []string{w.domain.Edges[2], w.domain.Edges[0]} {
		conn.works("before the move to " + edge)
		if err := w.lab.MoveLink(t.Context(), "dev1-eth0", edge); err != nil {
			t.Fatal(err)
		}
		w.eventually("the device has moved to "+edge, func() bool { return w.servedBy("dev1", w.port("dev1-eth0")) })
		s.goesOn("packets come to " + edge)
		conn.works("after the move to " + edge)
	}
	t.Logf("%v", s.stop())
	w.compareRules()
	w.leaked()
}
