package handover

import (
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// TestSmoke moves a host with a DHCP client of the distribution from one switch to another and
// back. It keeps its address and its TCP connection to a server behind the border port.
func TestSmoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.MobilityOptions{Levels: 2, Interfaces: 1})
	w.put("classes/open", handover.ClassSpec{Policy: "saving", Trigger: "open"})
	w.put("devices/dev1", handover.DeviceSpec{MACs: []string{hostMAC(w.lab.Host("dev1"), 0).String()}, Class: "open", Pool: pool})
	c := w.client(dhcpPrograms()[0], "dev1")
	c.heard = w.capture("dev1", 0)
	c.start()
	c.discovers()
	conn := w.connection("dev1")
	for _, edge := range []string{w.domain.Edges[1], w.domain.Edges[0]} {
		conn.works("before the move to " + edge)
		if err := w.lab.MoveLink(t.Context(), "dev1-eth0", edge); err != nil {
			t.Fatal(err)
		}
		c.reboots() // as the system does when a link has come up
		w.eventually("the device is served at "+edge, func() bool { return w.servedBy("dev1", w.port("dev1-eth0")) })
		conn.works("after the move to " + edge)
	}
	w.compareRules()
	w.leaked()
}
