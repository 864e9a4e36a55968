package network_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
)

// TestLoopThroughALinuxBridge plugs a Linux bridge, which forwards no LLDP, into two switches that have a
// link. The loop is named and one port blocked, and the bridge then carries only what is sent. When
// the bridge is gone, both ports are used again.
func TestLoopThroughALinuxBridge(t *testing.T) {
	t.Parallel()
	top := lab.Line("netloop", 2, delayline.Params{})
	top.Hosts = append(top.Hosts, lab.Host{Name: "legacy", Dynamic: true})
	top.Links = append(top.Links, lab.Both("s1", "legacy", delayline.Params{}), lab.Both("s2", "legacy", delayline.Params{}))
	l := lab.New(t, top)
	var found, gone atomic.Int64
	n, _ := run(t, l, network.Config{}, func(n *network.Network) {
		n.Subscribe(func(e network.Event) {
			switch e.Kind {
			case network.LoopFound:
				found.Add(1)
			case network.LoopGone:
				gone.Add(1)
			}
		})
	})
	ready(t, n, 2, 1, 4)
	ping(t, l, "h1", "h2")
	for _, command := range []string{"ip link add br0 type bridge", "ip link set eth0 master br0", "ip link set eth1 master br0", "ip link set br0 up"} {
		sh(t, l, "legacy", strings.Fields(command)...)
	}
	raw := openRaw(t, l, "h1", "eth0")
	mac := l.Host("h1").MACOf(0)
	broadcast := append(append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac[:]...), append([]byte{0x88, 0xb6}, make([]byte, 60)...)...)
	raw.send(t, broadcast)
	networktest.Eventually(t, "the loop to be named", func() bool { return len(n.Loops()) == 1 && found.Load() == 1 })
	received := func() (packets int) {
		// The files of /sys are those of another namespace.
		for line := range strings.Lines(sh(t, l, "legacy", "cat", "/proc/net/dev")) {
			dev, counts, _ := strings.Cut(strings.TrimSpace(line), ":")
			if dev != "eth0" && dev != "eth1" {
				continue
			}
			count, err := strconv.Atoi(strings.Fields(counts)[1])
			if err != nil {
				t.Fatal(err)
			}
			packets += count
		}
		return packets
	}
	// What circulates doubles with each broadcast. The bridge itself, the hosts and the probes send a
	// few frames between two readings; a loop brings thousands.
	const few = 50
	last := received()
	networktest.Eventually(t, "frames to stop circulating", func() bool {
		before := last
		raw.send(t, broadcast)
		sh(t, l, "h1", "ping", "-n", "-c", "3", "-i", "0.2", "-W", "2", l.Host("h2").Addr().String())
		last = received()
		return last-before < few
	})
	if len(n.Loops()) != 1 || found.Load() != 1 {
		t.Errorf("loops %v, told %d times", n.Loops(), found.Load())
	}
	sh(t, l, "legacy", "ip", "link", "del", "br0")
	networktest.Eventually(t, "the loop to be gone", func() bool { return len(n.Loops()) == 0 && gone.Load() == 1 })
	ready(t, n, 2, 1, 4)
	ping(t, l, "h1", "h2")
}
