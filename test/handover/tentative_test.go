package handover

import (
	"slices"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// TestKilledBeforeTheAnswer kills the controller after it has stored a seamless move that the
// device has not been told of. The device continues to send from its old place, without a loss,
// and may move to the new one.
func TestKilledBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	p := newProcess(t, lab.MobilityOptions{})
	p.put("classes/seamless", handover.ClassSpec{Policy: "seamless", Trigger: "open", Overlap: "1s"})
	radios := p.radios("dev1", 2)
	x := newPhone(1, 2)
	p.register("seamless", x)
	if err := x.join(t.Context(), radios[0], x.macs[0]); err != nil {
		t.Fatal(err)
	}
	old, now := place(0, x.macs[0]), place(1, x.macs[1])
	p.servedAt(radios, x.ip, old)
	if err := radios[1].tell(x.macs[1], x.reboot(x.macs[1])); err != nil {
		t.Fatal(err)
	}
	p.eventually("the move is stored", func() bool {
		all := p.handovers(x.id, 1)
		return len(all) == 1 && all[0].Kind == handover.KindMove
	})
	p.kill()
	p.launch()
	p.whole()
	p.burst(x, radios[0], x.macs[0], 100)
	p.burst(x, radios[1], x.macs[1], 100)
	var where []string
	if !p.poll(waitLimit, func() bool {
		where = p.delivered(radios, x.ip)
		return len(where) == 2 && slices.Contains(where, old) && slices.Contains(where, now)
	}) {
		t.Errorf("packets to the device come out at %v, want %v and %v", where, old, now)
	}
	if err := x.move(t.Context(), radios[1], x.macs[1]); err != nil {
		t.Fatal(err)
	}
	p.servedAt(radios, x.ip, now)
	p.compareRules()
}
