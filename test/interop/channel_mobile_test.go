package interop

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/match"
)

// publicAt is where people reach gateway out1: beside the switches, at the border's router, since
// what has a device's address and comes from there into switches ends.
var (
	publicAt   = netip.MustParsePrefix("203.0.113.2/24")
	publicGate = netip.MustParsePrefix("203.0.113.1/24")
)

// newCinemaDevice is a device that moves, and gateways at the switch of the border. The device
// and out1 are the test's own.
func newCinemaDevice(t *testing.T, name string) (*world, *testbed.Mobile) {
	t.Helper()
	topology := roaming(name, delayline.Params{}, mobility)
	for i := range topology.Hosts {
		if h := &topology.Hosts[i]; h.Name == device {
			h.Agent = true
		}
	}
	addr := agentAddr.Addr()
	for _, host := range []string{"in1", "out1"} {
		addr = addr.Next()
		topology.Hosts = append(topology.Hosts, lab.Host{Name: host, Agent: true, Addresses: []netip.Prefix{netip.PrefixFrom(addr, agentAddr.Bits())}})
		topology.Links = append(topology.Links, lab.Both(host, "root", delayline.Params{}))
	}
	topology.Hosts[len(topology.Hosts)-1].Routes = []lab.Route{{To: everyIPv4, Via: publicGate.Addr()}}
	topology.Links = append(topology.Links, lab.Link{
		A: lab.End{Node: "out1", Addresses: []netip.Prefix{publicAt}},
		B: lab.End{Node: mobility.Domain().Gateway, Addresses: []netip.Prefix{publicGate}},
	})
	w := buildRoamingWith(t, topology, map[string]testbed.CinemaRole{"in1": testbed.CinemaIngress, "out1": testbed.CinemaOwn, device: testbed.CinemaOwn})
	m := w.enter(device, 1)
	w.channel()
	return w, m
}

// TestDeviceIsGateway has a device be an egress gateway that moves while it gets a channel: the
// tree follows it.
func TestDeviceIsGateway(t *testing.T) {
	t.Parallel()
	w, m := newCinemaDevice(t, "pairset")
	g := w.watch(device, m.Addr())
	for _, edge := range []int{4, 2, 3, 1} {
		w.move(m, 1, edge)
		w.channelGoesOn(g)
	}
	w.must(g.Watch(t.Context()))
}

// TestDeviceWatches has somebody watch in Chromium on a device that moves, with a class for
// what the device gets of the picture: the picture goes on, in the class's queue.
func TestDeviceWatches(t *testing.T) {
	t.Parallel()
	w, m := newCinemaDevice(t, "pairtrain")
	w.startEgress("out1", netip.AddrPortFrom(publicAt.Addr(), testbed.PublicPort))
	w.post(classesPath, classes.ClassSpec{Name: "tv", Priority: "0", MinRate: match.Text(fmt.Sprint(int(2 * channelRate))), Flows: []match.Flow{{
		IPv4Src: match.Text(publicAt.Addr().String()), IPv4Dst: match.Text(m.Addr().String()), IPProto: "udp",
	}}}, nil)
	b, err := testbed.StartBrowser(t.Context(), w.lab.Host(device), filepath.Join(t.TempDir(), "chromium.log"))
	w.must(err)
	defer b.Close()
	w.must(b.Open(t.Context(), fmt.Sprintf("http://%v/#c1", netip.AddrPortFrom(publicAt.Addr(), testbed.PublicPort))))
	w.must(b.WatchPictures(t.Context()))
	w.must(b.Shows(t.Context(), 1))
	for _, edge := range []int{4, 2} {
		w.move(m, 1, edge)
		w.goesOn(b)
		w.entersQueue("tv", fmt.Sprintf("edge%d", edge))
	}
	w.must(b.Shows(t.Context(), 1))
}

// startEgress starts the gateway of a host, which people reach at an address of their own.
func (w *world) startEgress(host string, public netip.AddrPort) {
	w.t.Helper()
	h, dir := w.lab.Host(host), w.t.TempDir()
	files, api := w.GatewayFiles(host)
	file := filepath.Join(dir, "egress.yaml")
	w.must(os.WriteFile(file, fmt.Appendf(nil, `name: %s
control:
  listen: %v
  tls: {cert: %s, key: %s, ca: %s}
data: {address: %v}
public: {listen: "%v", plaintext: true}
announce: {server: "%s"}
`, host, netip.AddrPortFrom(h.ControlAddr(), gatePort), files.Cert, files.Key, files.CA, h.Addr(), public, api), 0o600))
	p, err := testbed.StartDaemon(context.WithoutCancel(w.t.Context()), h, filepath.Join(dir, "egress.log"), selfbuild.Binary(w.t), "cinema", "egress", "--config", file)
	w.must(err)
	w.t.Cleanup(p.Stop)
	w.must(testbed.Poll(w.t.Context(), host, func() error { return w.GatewayUp(w.t.Context(), host, testbed.CinemaEgress) }))
}

// goesOn waits until a page has shown 25 pictures more.
func (w *world) goesOn(b *testbed.Browser) {
	w.t.Helper()
	const pictures = `document.querySelector("video").getVideoPlaybackQuality().totalVideoFrames`
	before, err := testbed.InPage[int](w.t.Context(), b, pictures)
	w.must(err)
	w.must(testbed.PollFor(w.t.Context(), time.Minute, "the picture to go on", func() error {
		n, err := testbed.InPage[int](w.t.Context(), b, pictures)
		if err == nil && n < before+25 {
			err = fmt.Errorf("%d pictures more", n-before)
		}
		return err
	}))
}
