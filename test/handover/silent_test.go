package handover

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/mobile"
)

// TestSilentDeath makes the radio in use, and then the network behind it, lose everything while
// its link stays, under a stream to the device and one from it. With its default settings the
// device continues by its other radio.
func TestSilentDeath(t *testing.T) {
	t.Parallel()
	radio := delayline.Params{Delay: 2 * time.Millisecond}
	w := newWorld(t, lab.MobilityOptions{Radio: radio, Link: radio})
	w.put("classes/seamless", handover.ClassSpec{Policy: "seamless"})
	d := w.device(selfbuild.Binary(t), "dev1", "seamless", 2)
	server := netip.AddrPortFrom(w.domain.ServerAddr, 5000)
	for _, c := range []struct {
		name, link string
		stream     func() *stream
	}{
		{"the radio, packets come", "dev1-eth0", func() *stream { return d.stream() }},
		{"the radio, packets go", "dev1-eth0", func() *stream { return w.streamBetween("dev1", w.domain.Server, server) }},
		{"what is behind the edge, packets go", "core1-edge1", func() *stream { return w.streamBetween("dev1", w.domain.Server, server) }},
	} {
		d.uses("eth0")
		s := c.stream()
		s.goesOn("packets arrive")
		dead := radio
		dead.Loss = 1
		if err := w.lab.SetLinkParams(t.Context(), c.link, dead); err != nil {
			t.Fatal(err)
		}
		w.eventually("the device goes on by the other radio", func() bool {
			status, err := d.status()
			return err == nil && status.Active == "eth1"
		})
		s.goesOn("packets arrive by the other radio")
		moves := d.moves()
		if m := moves[len(moves)-1]; !strings.Contains(m.Why, "eth0 is silent") {
			t.Errorf("%s: the device moved because %s", c.name, m.Why)
		}
		t.Logf("%s: %v", c.name, s.stop())
		if err := w.lab.SetLinkParams(t.Context(), c.link, radio); err != nil {
			t.Fatal(err)
		}
	}
	w.leaked()
}

// uses makes the device use a radio, by its own choice from then on.
func (d *device) uses(name string) {
	d.w.t.Helper()
	d.w.eventually("the device uses "+name, func() bool {
		s, err := d.status()
		i := slices.IndexFunc(s.Interfaces, func(i mobile.InterfaceStatus) bool { return i.Name == name })
		if err != nil || i < 0 || s.Interfaces[i].Silent || s.Interfaces[i].RTT == 0 {
			return false
		}
		if s.Active != name {
			_ = d.ask("POST", "/v1/move", mobile.MoveRequest{Interface: name}, new(mobile.Move)) // refused if its network does not answer
			return false
		}
		return true
	})
}

func (d *device) moves() []mobile.Move {
	d.w.t.Helper()
	s, err := d.status()
	if err != nil {
		d.w.t.Fatal(err)
	}
	return s.Moves
}
