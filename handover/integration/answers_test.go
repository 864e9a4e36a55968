package integration

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/plugin"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/lab"
)

// forgetful makes a host ask for its neighbours again within three seconds, instead
// of half a minute, and give them up three seconds later.
func (w *world) forgetful(host string) {
	w.t.Helper()
	const eth0 = "net.ipv4.neigh.eth0."
	w.run(host, "sysctl", "-qw", eth0+"base_reachable_time_ms=1000", eth0+"delay_first_probe_time=1")
}

// TestNoControllerNoLoss ends the controller for as long as it takes the gateway and
// a device to ask for each other, and to give up if nobody answers. What the switches
// forward goes on both ways meanwhile, and while the controller starts again.
func TestNoControllerNoLoss(t *testing.T) {
	const perSecond, rest = 200, 9 * time.Second
	p := newProcess(t, lab.MobilityOptions{Interfaces: 1})
	p.put("classes/open", plugin.ClassSpec{Policy: "saving", Trigger: "open"})
	device := p.ordinary("dev1", 1)
	p.forgetful(p.domain.Gateway)
	p.forgetful("dev1")
	down := p.stream("dev1", netip.AddrPortFrom(device.ip, 9000), perSecond)
	up := p.streamBetween("dev1", p.domain.Server, netip.AddrPortFrom(p.domain.ServerAddr, 9001), perSecond)
	p.eventually("packets arrive both ways", func() bool { return down.count() > 0 && up.count() > 0 })
	pause.For(time.Second, "the rules of the device are there before the first packet; those that answer follow")
	p.kill()
	pause.For(rest, "nobody answers for so long")
	p.launch()
	r := p.recovery()
	pause.For(time.Second, "what is lost after the start counts, too")
	t.Logf("rules whole %v after the start", r.whole.Round(time.Millisecond))
	requireNoLoss(t, up.stop())
	requireNoLoss(t, down.stop())
	p.compareRules()
}
