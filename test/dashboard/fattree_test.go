package dashboard

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services"
	"github.com/sluice-net/sluice/services/sos"
)

// TestFatTree lets Chromium look at a fat tree of 45 switches with 54 hosts: simulated
// switches, which a controller of its own steers.
func TestFatTree(t *testing.T) {
	begin(t, "npm", "chromium")
	top := lab.FatTree("fat", 6, delayline.Params{})
	cfg := services.DefaultConfig()
	cfg.DataDir, cfg.Store.Kind = t.TempDir(), "memory"
	config.Of[*sos.Section](cfg).Enabled = false
	cfg.Network.Discovery.Interval, cfg.Network.Discovery.Timeout = time.Second, 10*time.Second
	cfg.Network.Switches = map[openflow.DatapathID]config.SwitchIs{}
	for i, s := range top.Switches {
		cfg.Network.Switches[openflow.DatapathID(i+1)] = config.SwitchIs{Name: s.Name, Rewrite: "auto", Bundles: "auto"}
	}
	switches, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, token := runController(t, cfg, switches)
	simulate(t, top, switches.Addr())
	visit(t, "fattree", server, token, "SLUICE_SWITCHES="+strconv.Itoa(len(top.Switches)), "SLUICE_HOSTS="+strconv.Itoa(len(top.Hosts)))
}

// port is one of a simulated switch.
type port struct {
	of     *fake.Switch
	number uint32
}

// simulate runs a topology's switches until the test ends: what one sends by a port that
// leads to another, that one receives. Each host asks for another once a second.
func simulate(t *testing.T, top lab.Topology, addr net.Addr) {
	t.Helper()
	switches, peers := map[string]*fake.Switch{}, map[port]port{}
	for i, s := range top.Switches {
		var self *fake.Switch
		self = fake.NewSwitch(fake.Options{DPID: openflow.DatapathID(i + 1), Ports: 6, OnOutput: func(number uint32, frame []byte) {
			if to, ok := peers[port{self, number}]; ok {
				_, _ = to.of.Receive(to.number, frame) // a switch that is not connected loses it
			}
		}})
		switches[s.Name] = self
	}
	used, hosts := map[string]uint32{}, []port{}
	next := func(name string) port {
		used[name]++
		return port{switches[name], used[name]}
	}
	for _, l := range top.Links {
		if switches[l.A.Node] == nil { // a host, whose link begins with it
			hosts = append(hosts, next(l.B.Node))
			continue
		}
		from, to := next(l.A.Node), next(l.B.Node)
		peers[from], peers[to] = to, from
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for _, s := range switches {
		running.Go(func() { _ = s.Dial(ctx, addr) }) // ends with the test
	}
	running.Go(func() { askEachOther(ctx, hosts) })
}

// askEachOther has each host ask for the first one, once a second until ctx ends.
func askEachOther(ctx context.Context, hosts []port) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)}) }
	for {
		for i, at := range hosts {
			frame := packet.AppendARPRequest(nil, openflow.MAC{2, 0, 0, 0, 1, byte(i + 1)}, address(i), address(0), 0)
			_, _ = at.of.Receive(at.number, frame) // a switch that is not connected loses it
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
