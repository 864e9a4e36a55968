package handover

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// arpFrom returns a frame with an ARP packet.
func arpFrom(src openflow.MAC, dst openflow.MAC, m packet.ARPMessage) []byte {
	return packet.AppendARP(nil, packet.Frame{Src: src, Dst: dst}, m)
}

// priorityTagged adds a priority tag (VLAN 0) to a frame, which hosts treat like a frame without a
// tag.
func priorityTagged(b []byte) []byte {
	return slices.Concat(b[:12], []byte{0x81, 0, 0xa0, 0}, b[12:])
}

// TestForgedARP checks which hosts may send ARP about addresses of gateways and devices.
func TestForgedARP(t *testing.T) {
	gateway, free, far := netip.MustParseAddr("10.8.0.1"), netip.MustParseAddr("10.8.30.7"), netip.MustParseAddr("192.0.2.7")
	liar := mac("06:ee:00:00:00:01")
	type claim struct {
		at       network.PortRef
		src, sha openflow.MAC
		m        packet.ARPMessage
		tag      bool
	}
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	reply := func(spa, tpa netip.Addr) packet.ARPMessage {
		return packet.ARPMessage{Op: packet.ARPReply, Sender: spa, TargetMAC: mac3, Target: tpa}
	}
	request := func(spa, tpa netip.Addr) packet.ARPMessage {
		return packet.ARPMessage{Op: packet.ARPRequest, Sender: spa, Target: tpa}
	}
	for name, c := range map[string]struct {
		claim
		verdict network.Verdict
		caught  bool
	}{
		"a host answers for the gateway":                   {claim{at: edge4, src: liar, sha: liar, m: reply(gateway, ip)}, network.Stop, true},
		"the same with a priority tag":                     {claim{at: edge4, src: liar, sha: liar, m: reply(gateway, ip), tag: true}, network.Stop, true},
		"a host asks as the gateway":                       {claim{at: edge4, src: liar, sha: liar, m: request(gateway, far)}, network.Stop, true},
		"a host announces itself as the gateway":           {claim{at: edge4, src: liar, sha: liar, m: request(gateway, gateway)}, network.Stop, true},
		"a host answers for a device":                      {claim{at: edge4, src: liar, sha: liar, m: reply(ip, far)}, network.Stop, true},
		"a host asks as a device":                          {claim{at: edge4, src: liar, sha: liar, m: request(ip, far)}, network.Stop, true},
		"a host asks as a device, from its address":        {claim{at: edge4, src: mac1, sha: liar, m: request(ip, far)}, network.Stop, true},
		"a device answers for itself":                      {claim{at: edge3, src: mac1, sha: mac1, m: reply(ip, far)}, network.Stop, false},
		"a device asks where it has just come to":          {claim{at: edge4, src: mac2, sha: mac2, m: request(ip, gateway)}, network.Stop, false},
		"a device asks for a stranger":                     {claim{at: edge3, src: mac1, sha: mac1, m: request(ip, far)}, network.Continue, false},
		"a host that is no device answers for itself":      {claim{at: edge4, src: liar, sha: liar, m: reply(free, far)}, network.Continue, false},
		"the gateway answers at its border port":           {claim{at: uplink, src: routerMAC, sha: routerMAC, m: reply(gateway, free)}, network.Continue, false},
		"somebody at the border port answers for a device": {claim{at: uplink, src: liar, sha: liar, m: reply(ip, gateway)}, network.Stop, false},
		"what a switch passes on":                          {claim{at: ref(2, 11), src: routerMAC, sha: routerMAC, m: reply(gateway, free)}, network.Continue, false},
	} {
		t.Run(name, func(t *testing.T) {
			r.guards.forgers.expire(time.Now().Add(time.Hour))
			c.m.SenderMAC = c.sha
			b := arpFrom(c.src, mac3, c.m)
			if c.tag {
				b = priorityTagged(b)
			}
			if got := r.in(c.at, b); got != c.verdict {
				t.Errorf("%v, want %v", got, c.verdict)
			}
			if errors := r.guards.forgers.errors(); (len(errors) > 0) != c.caught {
				t.Errorf("caught: %q", errors)
			}
		})
	}
}

// A port is reported once, however much and about whatever it forges, and once more when it has
// been quiet for a while.
func TestForgedARPIsBounded(t *testing.T) {
	r := newRig(t, nil)
	sub := r.bus.Subscribe(0)
	gateway, now := netip.MustParseAddr("10.8.0.1"), time.Now()
	for i := range 1000 {
		liar := openflow.MAC{6, 0xee, 0, 0, byte(i >> 8), byte(i)}
		r.in(edge4, arpFrom(liar, mac3, packet.ARPMessage{Op: packet.ARPReply, SenderMAC: liar, Sender: gateway, TargetMAC: mac3, Target: addr4(0x0a080100 + uint32(i))}))
	}
	key := keyForged + edge4.String()
	var rules []network.Rule
	r.eventually("the switch drops what is forged", func() bool {
		rules = r.w.Program(key).Rules
		return len(rules) > 0
	})
	for _, x := range rules {
		if len(x.Actions) > 0 || x.Hard != silenceTime || !x.NotifyRemoved || x.Switch != edge4.Switch {
			t.Errorf("rule %+v", x)
		}
	}
	if len(r.guards.forgers.ports) != 1 {
		t.Errorf("%d ports are remembered", len(r.guards.forgers.ports))
	}
	// The switch reports how many packets it has dropped when its rules end.
	for i, x := range rules {
		if got := r.guards.forgers.expire(time.Now().Add(silenceTime)); len(got) != 0 {
			t.Fatalf("over while %d of %d rules stand: %v", len(rules)-i, len(rules), got)
		}
		r.Removed(network.Removed{Installed: network.InstalledRule{Rule: x, Name: key, Packets: uint64(10 * i)}})
	}
	if got := r.guards.forgers.expire(now); len(got) != 0 {
		t.Errorf("over at once: %v", got)
	}
	if got, want := r.guards.forgers.expire(time.Now().Add(silenceTime)), uint64(1000+10*(len(rules)-1)*len(rules)/2); got[edge4] != want {
		t.Errorf("%v dropped, want %d", got, want)
	}
	kinds := slices.DeleteFunc(happened(t, r.bus, sub), func(k string) bool { return k != Name+".forged-arp.started" })
	if len(kinds) != 1 {
		t.Errorf("%d events tell of the port, want one", len(kinds))
	}
}
