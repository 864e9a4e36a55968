package handover

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// TestHostInTheNetworkOfDevices has hosts with addresses in the devices' network and no lease: one
// behind the border port, which a device reaches, and one at an edge port, which it does not. The
// device is told at once that this host cannot be reached, and so is the operator, with what would
// help.
func TestHostInTheNetworkOfDevices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.MobilityOptions{Devices: 2, Interfaces: 1})
	w.put("classes/open", handover.ClassSpec{Policy: "saving", Trigger: "open"})
	w.ordinary("dev1", 1)
	beyond, astray := netip.MustParseAddr("10.20.0.60"), netip.MustParseAddr("10.20.0.50")
	w.run(w.domain.Gateway, "ip", "addr", "add", beyond.String()+"/32", "dev", "lo")
	w.run("dev2", "ip", "addr", "add", astray.String()+"/16", "dev", "eth0")
	w.floods()
	w.run("dev2", "ping", "-c", "1", "-W", "5", w.domain.GatewayAddr.String())

	w.run("dev1", "ping", "-c", "1", "-W", "5", beyond.String())
	out, err := w.lab.Host("dev1").Command(t.Context(), "ping", "-c", "1", "-W", "10", astray.String()).CombinedOutput()
	if err == nil || !contains(string(out), "Unreachable") {
		t.Errorf("ping of a host that cannot be reached: %v\n%s", err, out)
	}
	var status handover.Status
	w.get("status", &status)
	if !slices.ContainsFunc(status.Errors, func(e string) bool {
		return contains(e, astray.String()) && contains(e, w.port("dev2-eth0").String()) && contains(e, "cannot reach it")
	}) {
		t.Errorf("the status does not tell: %v", status.Errors)
	}
	if contains(w.log.String(), beyond.String()) {
		t.Error("the log tells of the host that can be reached")
	}
}
