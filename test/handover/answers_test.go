package handover

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// forgetful makes a host ask for its neighbours again within three seconds, instead of half a
// minute, and give them up three seconds later.
func (w *world) forgetful(host string) {
	w.t.Helper()
	const eth0 = "net.ipv4.neigh.eth0."
	w.run(host, "sysctl", "-qw", eth0+"base_reachable_time_ms=1000", eth0+"delay_first_probe_time=1")
}

// TestGoesOnWithoutController stops the controller for as long as it takes the gateway and a
// device to ask for each other, and to give up if nobody answers. Meanwhile, and after the
// controller has started again, packets flow in both directions.
func TestGoesOnWithoutController(t *testing.T) {
	t.Parallel()
	const rest = 9 * time.Second
	p := newProcess(t, lab.MobilityOptions{Interfaces: 1})
	p.put("classes/open", handover.ClassSpec{Policy: "saving", Trigger: "open"})
	device := p.ordinary("dev1", 1)
	p.forgetful(p.domain.Gateway)
	p.forgetful("dev1")
	down := p.stream("dev1", netip.AddrPortFrom(device.ip, 9000))
	up := p.streamBetween("dev1", p.domain.Server, netip.AddrPortFrom(p.domain.ServerAddr, 9001))
	goOn := func(when string) {
		t.Helper()
		down.goesOn("packets arrive at the device " + when)
		up.goesOn("packets arrive at the server " + when)
	}
	goOn("before")
	p.whole() // the answering rules follow those of the device
	p.kill()
	pause.For(rest, "the controller is away for so long that neighbours whom nobody answers give up")
	goOn("when nobody has answered for a while")
	p.launch()
	p.whole()
	goOn("after the next start")
	t.Logf("to the device: %v; from it: %v", down.stop(), up.stop())
	p.compareRules()
}
