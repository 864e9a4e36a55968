package handover

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// A packet with an address of a pool from a port where no device has it passes the meter on its
// way to the controller, whatever its ECN. A switch without meters drops it.
func TestSpoofRules(t *testing.T) {
	given := []netip.Prefix{netip.MustParsePrefix("10.8.0.8/29"), netip.MustParsePrefix("10.8.0.16/28")}
	for how, want := range map[spoofMode]int{spoofToController: 4, spoofToControllerStale: 2} {
		p := spoofRules(7, given, how)
		if len(p.Rules) != want || len(p.Meters) != 1 || p.Meters[0].Switch != 7 {
			t.Fatalf("%d: %+v", how, p)
		}
		for _, r := range p.Rules {
			if r.Meter != p.Meters[0].ID || len(r.Actions) != 1 || r.Actions[0].Port() != openflow.PortController {
				t.Errorf("%d: %+v", how, r)
			}
		}
	}
	p := spoofRules(7, given, spoofDrop)
	if len(p.Rules) != 2 || len(p.Meters) != 0 {
		t.Fatalf("without meters: %+v", p)
	}
	for _, r := range p.Rules {
		if r.Meter != 0 || len(r.Actions) != 0 {
			t.Errorf("without meters: %+v", r)
		}
	}
	if p := spoofRules(7, nil, spoofToController); len(p.Rules)+len(p.Meters) != 0 {
		t.Errorf("nothing is given out: %+v", p)
	}
}

// Only a rule for packets from the device, from that very port, accepts packets there; rules for
// packets to the device do not.
func TestTakes(t *testing.T) {
	rules := []network.Rule{
		{Switch: 1, Stage: network.StageDevice, Offset: rule.DeviceUp, Match: openflow.MustMatch(openflow.InPort(3), openflow.EthType(0x0800))},
		{Switch: 1, Stage: network.StageDevice, Offset: rule.DeviceDown, Match: openflow.MustMatch(openflow.InPort(4), openflow.EthType(0x0800))},
	}
	for at, want := range map[network.PortRef]bool{
		{Switch: 1, Port: 3}: true, {Switch: 1, Port: 4}: false, {Switch: 2, Port: 3}: false,
	} {
		if acceptedBy(rules, at) != want {
			t.Errorf("%v: %v, want %v", at, !want, want)
		}
	}
}
