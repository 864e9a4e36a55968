package handover

import (
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
)

// traveller is a device of a, with the daemon and two interfaces in each of two domains,
// and a TCP connection to a server in its own.
type traveller struct {
	*device
	t      *testing.T
	a, b   *operator
	conn   *connection
	radios []*radio // its interfaces
}

// TestDomains moves a device between two operators and inside the one that it visits. Its
// connection survives, its home confirms its identity, and when it has left no state remains in
// the visited domain. An announced device is served in both domains before it moves.
func TestDomains(t *testing.T) {
	t.Parallel()
	a, b := newOperators(t, lab.MobilityOptions{Interfaces: 4, Devices: 2})
	a.steadfast = true
	x := &traveller{t: t, a: a, b: b, device: a.device(selfbuild.Binary(t), "dev1", "seamless", 4), conn: a.connection("dev1"), radios: a.radios("dev1", 4)}
	x.announced()
	x.unannounced()
	x.inside()
	x.stranger()
}

// to moves the device to an interface in a domain.
func (x *traveller) to(in *operator, eth string) {
	x.t.Helper()
	if _, err := x.move(eth); err != nil {
		x.t.Fatalf("move to %s: %v", eth, err)
	}
	x.conn.works("in the move to " + eth)
	settled(x.a, in, "dev1")
	x.conn.works("after the move to " + eth)
}

// announced moves the device abroad and home again; each domain announces it to the other before.
func (x *traveller) announced() {
	x.t.Helper()
	host := x.a.lab.Host("dev1")
	for range 2 {
		x.a.announce("dev1", x.a.port("dev1-eth1"), hostMAC(host, 1))
		x.inBoth()
		x.to(x.b, "eth1")
		x.b.announce("dev1@a", x.a.port("dev1-eth0"), hostMAC(host, 0))
		x.inBoth()
		x.to(x.a, "eth0")
	}
	x.b.eventually("the visited domain has no rule for the device", func() bool { return len(x.b.rulesFor(x.ip)) == 0 })
	if l, ok := x.b.lease("dev1@a"); ok {
		x.t.Errorf("the visited domain still has %+v", l)
	}
}

// inBoth waits until packets to the device arrive at two of its interfaces, of which one is in
// each domain.
func (x *traveller) inBoth() {
	x.t.Helper()
	x.a.eventually("the device is served in both domains", func() bool {
		var at []string
		for _, where := range x.a.delivered(x.radios, x.ip) {
			at = append(at, where[:1])
		}
		return slices.Equal(at, []string{"0", "1"})
	})
}

// unannounced moves the device, which ends abroad: the domain in which it appears asks its
// neighbour.
func (x *traveller) unannounced() {
	x.t.Helper()
	x.to(x.b, "eth1")
	x.to(x.a, "eth0")
	x.to(x.b, "eth1")
}

// inside moves the device between two places of the domain that it visits.
func (x *traveller) inside() {
	x.t.Helper()
	for _, eth := range []string{"eth3", "eth1"} {
		if _, err := x.move(eth); err != nil {
			x.t.Fatal(err)
		}
		x.b.eventually("the move inside is recorded", func() bool { return x.b.servedBy("dev1@a", x.b.port("dev1-"+eth)) })
		x.conn.works("after the move to " + eth + ", inside the visited domain")
	}
}

// stranger sends requests in the visited domain with the device's hardware address from another
// port: they get neither an answer nor a packet.
func (x *traveller) stranger() {
	x.t.Helper()
	before := x.b.handovers("dev1@a", 1)[0]
	at, mac := x.b.radio("dev2", 0), hostMAC(x.a.lab.Host("dev1"), 1)
	p := newPhone(1, 1)
	p.ip = x.ip
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDiscover} {
		m := p.reboot(mac)
		m.UpdateOption(dhcpv4.OptMessageType(kind))
		if reply, err := at.ask(x.t.Context(), mac, m, refusedWithin); err == nil {
			x.t.Errorf("%v of a stranger is answered: %v", kind, reply)
		}
	}
	if after := x.b.handovers("dev1@a", 1)[0]; after.ID != before.ID {
		x.t.Errorf("it was moved: %+v", after)
	}
	x.conn.works("beside a stranger with the device's hardware address")
}

// TestDomainsHorizontal does the same with one interface whose cable is moved from one operator's
// edge to the other's. Packets that were sent while there was no link, or before the network knew
// of the move, may be lost.
func TestDomainsHorizontal(t *testing.T) {
	t.Parallel()
	a, b := newOperators(t, lab.MobilityOptions{Interfaces: 1})
	d := a.device(selfbuild.Binary(t), "dev1", "seamless", 1)
	conn, s := a.connection("dev1"), d.stream()
	for _, p := range []struct {
		to   *operator
		edge string
	}{{b, b.domain.Edges[0]}, {a, a.domain.Edges[1]}} {
		conn.works("before the move to " + p.edge)
		if err := a.lab.MoveLink(t.Context(), "dev1-eth0", p.edge); err != nil {
			t.Fatal(err)
		}
		settled(a, p.to, "dev1")
		s.goesOn("packets come to " + p.edge)
		conn.works("after the move to " + p.edge)
	}
	t.Logf("one interface, unannounced, between domains: %v", s.stop())
}
