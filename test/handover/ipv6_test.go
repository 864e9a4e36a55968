package handover

import (
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// TestIPv6AndGroups checks what happens to frames of devices that are not unicast IPv4. IPv6 is
// forwarded as usual, by MAC addresses: a client has it before a move and after. A device with the
// daemon has none, so that no connection uses an address that does not move. Packets to a group
// that come in at a border port reach every host once; those from a device go to the border port
// only.
func TestIPv6AndGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.MobilityOptions{Devices: 2, Interfaces: 2})
	w.steadfast = true
	w.put("classes/open", handover.ClassSpec{Policy: "saving", Trigger: "open"})
	w.device(selfbuild.Binary(t), "dev1", "", 2)
	w.ordinary("dev2", 2)
	gw := w.domain.Gateway
	w.run(gw, "ip", "-6", "addr", "add", "fd20::1/64", "dev", "eth0", "nodad")
	w.run("dev2", "ip", "-6", "addr", "add", "fd20::12/64", "dev", "eth0", "nodad")

	if out := w.run("dev1", "ip", "-6", "addr", "show", "dev", "mobile0"); strings.TrimSpace(out) != "" {
		t.Errorf("a device with the daemon has IPv6 on its virtual interface:\n%s", out)
	}
	w.floods()
	w.run("dev2", "ping", "-6", "-c", "3", "-W", "5", "fd20::1")

	group := netip.MustParseAddr("239.1.2.3")
	for host, link := range map[string]string{gw: "eth0", "dev1": "mobile0", "dev2": "eth0"} {
		w.run(host, "ip", "route", "replace", group.String(), "dev", link)
		w.join(host, link, group)
	}
	down := map[string]*stream{}
	for i, host := range []string{"dev1", "dev2"} {
		down[host] = w.streamBetween(gw, host, netip.AddrPortFrom(group, uint16(6001+i)))
	}
	up := netip.AddrPortFrom(group, 6003)
	var strayed atomic.Int32
	for _, r := range []*radio{w.radio("dev1", 0), w.radio("dev1", 1)} {
		defer r.watch(func(f frame) {
			if f.to == up {
				strayed.Add(1)
			}
		})()
	}
	down["the root"] = w.streamBetween("dev2", gw, up)
	for host, s := range down {
		s.goesOn("packets of the group reach " + host)
		r := s.stop()
		t.Logf("%s: %v", host, r)
		if r.doubled > 0 {
			t.Errorf("%d packets of the group came to %s twice", r.doubled, host)
		}
	}
	if n := strayed.Load(); n > 0 {
		t.Errorf("%d packets of a device to a group reached another device", n)
	}

	if err := w.lab.MoveLink(t.Context(), "dev2-eth0", w.domain.Edges[0]); err != nil {
		t.Fatal(err)
	}
	w.eventually("the client has IPv6 where it has moved to", func() bool {
		return w.lab.Host("dev2").Command(t.Context(), "ping", "-6", "-c", "1", "-W", "1", "fd20::1").Run() == nil
	})
}

// join makes a host a member of a group on one of its links.
func (w *world) join(host, link string, group netip.Addr) {
	w.t.Helper()
	var c *net.UDPConn
	err := w.lab.Host(host).Do(func() error {
		i, err := net.InterfaceByName(link)
		if err == nil {
			c, err = net.ListenMulticastUDP("udp4", i, &net.UDPAddr{IP: group.AsSlice(), Port: 6999})
		}
		return err
	})
	if err != nil {
		w.t.Fatalf("%s joins %v on %s: %v", host, group, link, err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
}
