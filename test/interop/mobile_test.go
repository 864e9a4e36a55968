package interop

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
)

const device = "dev1"

// mobility is the part of the network in which the device moves: four edge switches
// below the one that has the border port, and a radio of the device at each.
var mobility = lab.MobilityOptions{Levels: 2, Fanout: 4, Interfaces: 4, Radio: delayline.Params{Rate: rate, Delay: 2 * time.Millisecond}}

// The network of the agent at the border, on the router's side of it that devices see.
var (
	agentGate = netip.MustParsePrefix("10.21.0.1/24")
	agentAddr = netip.MustParsePrefix("10.21.0.2/24")
	everyIPv4 = netip.MustParsePrefix("0.0.0.0/0")
)

// roaming is the network of a device that moves, an agent at its border, and the site of
// a server with another agent, behind a router and a long link:
//
//	dev1 - edge1..edge4 - root - gw ==== far - server, y
//	                        \ x
func roaming(name string, long delayline.Params, o lab.MobilityOptions) lab.Topology {
	d := o.Domain()
	t := lab.Mobility(name, o)
	t.Switches = append(t.Switches, lab.Switch{Name: "far"})
	server := netip.PrefixFrom(d.ServerAddr, 24)
	near := server.Masked().Addr().Next() // the router's, on the server's side
	t.Hosts = append(t.Hosts,
		lab.Host{Name: "x", Agent: true, Addresses: []netip.Prefix{agentAddr}, Routes: []lab.Route{{To: everyIPv4, Via: agentGate.Addr()}}},
		lab.Host{
			Name: "y", Agent: true, Addresses: []netip.Prefix{netip.PrefixFrom(d.ServerAddr.Next(), 24)},
			Routes: []lab.Route{{To: everyIPv4, Via: near}},
		})
	for i := range t.Links {
		l := &t.Links[i]
		switch {
		case l.Name == "uplink":
			l.A.Addresses = append(l.A.Addresses, agentGate)
		case l.A.Node == d.Gateway && l.B.Node == d.Server:
			l.Name, l.B.Node, l.AtoB, l.BtoA = "wan", "far", long, long
		}
	}
	plain := func(a, b string) lab.Link { return lab.Both(a, b, delayline.Params{}) }
	t.Links = append(t.Links, plain("x", "root"), plain(d.Server, "far"), plain("y", "far"))
	return t
}

// newRoaming builds it, and brings the device in.
func newRoaming(t testing.TB, name string, long delayline.Params) (*world, *testbed.Mobile) {
	t.Helper()
	w := buildRoaming(t, roaming(name, long, mobility))
	return w, w.enter(device, 1)
}

func buildRoaming(t testing.TB, topology lab.Topology) *world {
	t.Helper()
	return buildRoamingWith(t, topology, nil)
}

// buildRoamingWith is buildRoaming with gateways of Cinema.
func buildRoamingWith(t testing.TB, topology lab.Topology, gateways map[string]testbed.CinemaRole) *world {
	t.Helper()
	w := buildWith(t, topology, gateways, "", func(l *lab.Lab) string {
		d := mobility.Domain()
		return fmt.Sprintf(`handover:
  enabled: true
  borders:
    - {port: %016x/%d}
  pools:
    devices: {prefix: %v, gateway: %v, first: %v}
`, l.Switch(d.Root).DPID(), lab.UplinkPort, d.Prefix, d.GatewayAddr, d.GatewayAddr.Next().Next())
	})
	w.must(w.PutClass(t.Context(), "seamless", handover.ClassSpec{Policy: "seamless"}))
	return w
}

// enter brings a device in.
func (w *world) enter(host string, number byte) *testbed.Mobile {
	w.t.Helper()
	m, err := testbed.StartMobile(context.WithoutCancel(w.t.Context()), testbed.MobileOptions{
		Host: w.lab.Host(host), Binary: selfbuild.Binary(w.t), LogDir: w.t.TempDir(), Home: w, Class: "seamless",
		Device: host, Number: number, Interfaces: []string{"eth0", "eth1", "eth2", "eth3"},
	})
	w.must(err)
	w.t.Cleanup(func() { w.must(m.Close()) })
	return m
}
