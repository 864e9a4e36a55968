package handover

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

var gatewayIP = netip.MustParseAddr("10.8.0.1")

// asked returns a switch's answer to a question for an address; it is empty if the switch leaves
// the answer to the controller.
func (r *rig) asked(at network.PortRef, asker netip.Addr, mac openflow.MAC, target netip.Addr) string {
	r.t.Helper()
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	out := r.w.tables[at.Switch].Send(at.Port, fake.PacketOf(packet.AppendARPRequest(nil, mac, asker, target, 0))).Outputs
	if len(out) != 1 || out[0].Port == openflow.PortController {
		return ""
	}
	text := fmt.Sprint(out[0].Port == openflow.PortInPort)
	for _, f := range []openflow.Field{
		openflow.FieldEthSrc, openflow.FieldEthDst, openflow.FieldARPOp, openflow.FieldARPSPA, openflow.FieldARPSHA, openflow.FieldARPTPA, openflow.FieldARPTHA,
	} {
		v, _ := out[0].Packet.Get(f)
		text += " " + v.String()
	}
	return text
}

// answered returns the expected answer to that question.
func answered(asker netip.Addr, mac openflow.MAC, target netip.Addr, by openflow.MAC) string {
	return fmt.Sprintf("true %v %v %v %v %v %v %v", openflow.EthSrc(by), openflow.EthDst(mac), openflow.ARPOp(packet.ARPReply),
		openflow.ARPSPA(target), openflow.ARPSHA(by), openflow.ARPTPA(asker), openflow.ARPTHA(mac))
}

// Switches answer repeated questions, wherever the device goes: the gateway's for the device, and
// the device's for the gateway. All other questions go to the controller, and all questions when
// the device has left.
func TestSwitchesAnswer(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	if got, want := r.asked(uplink, gatewayIP, routerMAC, ip), answered(gatewayIP, routerMAC, ip, mac1); got != want {
		t.Errorf("the gateway asks for the device: %q, want %q", got, want)
	}
	if got, want := r.asked(edge3, ip, mac1, gatewayIP), answered(ip, mac1, gatewayIP, routerMAC); got != want {
		t.Errorf("the device asks for the gateway: %q, want %q", got, want)
	}
	for what, got := range map[string]string{
		"the device, before it has an address":      r.asked(edge3, netip.IPv4Unspecified(), mac1, gatewayIP),
		"the device, from elsewhere":                r.asked(edge4, ip, mac1, gatewayIP),
		"somebody else in the device's name":        r.asked(edge3, ip, mac3, gatewayIP),
		"the device, for another device":            r.asked(edge3, ip, mac1, ip.Next()),
		"somebody in the gateway's name":            r.asked(uplink, gatewayIP, mac3, ip),
		"the gateway, for a device that is unknown": r.asked(uplink, gatewayIP, routerMAC, ip.Next()),
	} {
		if got != "" {
			t.Errorf("%s has an answer from the switch: %q", what, got)
		}
	}
	r.move(edge4, mac2, ip)
	r.idle()
	if got := r.asked(edge3, ip, mac1, gatewayIP); got != "" {
		t.Errorf("at the place that it has left: %q", got)
	}
	if got, want := r.asked(edge4, ip, mac2, gatewayIP), answered(ip, mac2, gatewayIP, routerMAC); got != want {
		t.Errorf("at its new place: %q, want %q", got, want)
	}
	if err := r.queue.Do(t.Context(), "car", func(ctx context.Context) error { return host{r.Service}.gone(ctx, "car") }); err != nil {
		t.Fatal(err)
	}
	if got := r.asked(uplink, gatewayIP, routerMAC, ip) + r.asked(edge4, ip, mac2, gatewayIP); got != "" {
		t.Errorf("when it has gone: %q", got)
	}
}

// After a start the answering rules are written before obsolete rules are removed.
func TestSwitchesAnswerAfterStart(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	r.stop()
	r.w.Restart()
	r.w.touched()
	next := start(t, r.w, r.st, nil)
	if declared := len(r.w.Program(keyAnswer + "car").Rules); declared != 2 {
		t.Errorf("%d answers are declared when the service is ready, want 2", declared)
	}
	if got, want := next.asked(uplink, gatewayIP, routerMAC, ip), answered(gatewayIP, routerMAC, ip, mac1); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A switch that cannot rewrite ARP leaves the answer to the controller, and the other switches
// answer.
func TestMuteSwitch(t *testing.T) {
	w, refused := newWorld(treeLinks), false
	w.refuse = func(key string) error {
		if key == keyAnswer+"car" && !refused {
			refused = true
			return &network.RuleError{Switch: edge3.Switch, Err: network.ErrRefused}
		}
		return nil
	}
	r := start(t, w, newStore(t), nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	r.checkDevices()
	r.idle()
	if got := r.asked(edge3, ip, mac1, gatewayIP); got != "" {
		t.Errorf("the switch that cannot: %q", got)
	}
	if got := r.asked(uplink, gatewayIP, routerMAC, ip); got == "" {
		t.Error("the switch that can does not answer")
	}
}
