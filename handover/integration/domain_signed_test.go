package integration

import (
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
)

// TestDomainsVisitorMovesInside moves a device with a key inside the domain that it
// visits, under a stream of 1,000 packets a second: its home says each time that it
// is it, and nothing is lost. Somebody at another port with its hardware address gets
// neither an answer nor a packet.
func TestDomainsVisitorMovesInside(t *testing.T) {
	const rounds = 5
	a, b := newOperators(t, lab.MobilityOptions{Interfaces: 4, Devices: 2})
	a.steadfast = true
	d := a.device(selfbuild.Binary(t), "dev1", "seamless", 4)
	host := a.lab.Host("dev1")
	a.announce("dev1", a.port("dev1-eth1"), hostMAC(host, 1))
	if _, err := d.move("eth1"); err != nil {
		t.Fatal(err)
	}
	settled(a, b, "dev1")
	s := d.stream(1000)
	for range rounds {
		for _, eth := range []string{"eth3", "eth1"} {
			came := s.count()
			a.eventually("packets come", func() bool { return s.count() > came+200 })
			m, err := d.move(eth)
			if err != nil {
				t.Fatal(err)
			}
			b.eventually("the move is recorded", func() bool {
				last := b.handovers("dev1@a", 1)
				return len(last) > 0 && last[0].To != nil && last[0].To.Port.PortRef == b.port("dev1-"+eth)
			})
			t.Logf("to %s: DHCP %v", eth, m.Lease.Round(time.Microsecond))
		}
	}
	before := b.handovers("dev1@a", 1)[0]
	stranger, mac := b.radio("dev2", 0), hostMAC(host, 1)
	p := newPhone(1, 1)
	p.ip = d.ip
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDiscover} {
		m := p.reboot(mac)
		m.UpdateOption(dhcpv4.OptMessageType(kind))
		if reply, err := stranger.ask(shortContext(t), mac, m, answerWithin); err == nil {
			t.Errorf("%v of a stranger is answered: %v", kind, reply)
		}
	}
	if after := b.handovers("dev1@a", 1)[0]; after.ID != before.ID {
		t.Errorf("it was moved: %+v", after)
	}
	came := s.count()
	a.eventually("packets go on", func() bool { return s.count() > came+200 })
	r := s.stop()
	t.Logf("%d moves inside the visited domain: %v", 2*rounds, r)
	requireNoLoss(t, r)
}
