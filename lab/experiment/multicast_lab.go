package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/network/packet"
)

// multicastNet is a network of switches made into one of routers: each switch becomes a host that
// forwards, and each link a subnet.
type multicastNet struct {
	top     lab.Topology
	routers []string
	subnets []subnet
}

// subnet is a link with its prefix and its routers.
type subnet struct {
	prefix netip.Prefix
	at     map[string]netip.Addr // addresses by node
}

// rendezvous is the router that is the rendezvous point of all groups. As in any network with
// sources everywhere, it is not on the shortest path to every gateway.
const rendezvous = "s4"

func routed(name string, from lab.Topology) *multicastNet {
	n := &multicastNet{top: lab.Topology{Name: name}}
	for _, s := range from.Switches {
		n.routers = append(n.routers, s.Name)
	}
	for i, l := range from.Links {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 0}), 24)
		a, b := p.Addr().Next(), p.Addr().Next().Next()
		l.A, l.B = lab.End{Node: l.A.Node, Addresses: []netip.Prefix{netip.PrefixFrom(a, 24)}}, lab.End{Node: l.B.Node, Addresses: []netip.Prefix{netip.PrefixFrom(b, 24)}}
		n.top.Links = append(n.top.Links, l)
		n.subnets = append(n.subnets, subnet{p, map[string]netip.Addr{l.A.Node: a, l.B.Node: b}})
	}
	loose := map[string]string{"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.default.rp_filter": "0"}
	for _, r := range n.routers {
		n.top.Hosts = append(n.top.Hosts, lab.Host{Name: r, Router: true, Routes: n.routes(r), Sysctls: loose})
	}
	for _, h := range from.Hosts {
		n.top.Hosts = append(n.top.Hosts, lab.Host{Name: h.Name, Routes: n.stub(h.Name)})
	}
	return n
}

// stub returns the routes of a host, all of them by its router.
func (n *multicastNet) stub(host string) []lab.Route {
	for _, s := range n.subnets {
		if _, ok := s.at[host]; ok {
			return []lab.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: s.at["s"+host[1:]]}}
		}
	}
	return nil
}

// routes returns the routes of a router to all subnets, by the shortest paths.
func (n *multicastNet) routes(from string) (all []lab.Route) {
	via, far := map[string]netip.Addr{}, map[string]int{from: 0}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, s := range n.subnets {
			if _, here := s.at[at]; !here {
				continue
			}
			for next, addr := range s.at {
				if _, reached := far[next]; reached || next[0] != 's' {
					continue
				}
				far[next], via[next] = far[at]+1, via[at]
				if at == from {
					via[next] = addr
				}
				queue = append(queue, next)
			}
		}
	}
	for _, s := range n.subnets {
		if _, here := s.at[from]; here {
			continue
		}
		best := ""
		for node := range s.at {
			if node[0] == 's' && (best == "" || far[node] < far[best] || far[node] == far[best] && node < best) {
				best = node
			}
		}
		all = append(all, lab.Route{To: s.prefix, Via: via[best]})
	}
	return all
}

// multicastRig is a multicastNet with pimd on each router.
type multicastRig struct {
	net      *multicastNet
	lab      *lab.Lab
	env      *Env
	feed     *testbed.Feed
	arrivals []*testbed.Arrivals
	watches  []*testbed.FrameWatch
	daemons  []*testbed.Daemon
	control  atomic.Uint64 // messages of IGMP and PIM that routers have received
	groups   int           // groups that have been used
}

func (e *Env) withMulticast(ctx context.Context, f func(context.Context, *multicastRig) error) error {
	top, _ := treeNetwork("pim")
	n := routed("pim", top)
	return e.withLab(ctx, n.top, func(ctx context.Context, l *lab.Lab) (err error) {
		rig := &multicastRig{net: n, lab: l, env: e}
		defer rig.close()
		if err := rig.start(ctx); err != nil {
			return err
		}
		return f(ctx, rig)
	})
}

func (rig *multicastRig) close() {
	for _, d := range rig.daemons {
		d.Stop()
	}
	for _, w := range rig.watches {
		w.Close()
	}
	for _, a := range rig.arrivals {
		a.Close()
	}
	if rig.feed != nil {
		rig.feed.Close()
	}
}

func (rig *multicastRig) start(ctx context.Context) (err error) {
	var rp netip.Addr
	for _, s := range rig.net.subnets {
		if a, ok := s.at[rendezvous]; ok {
			rp = a
			break
		}
	}
	file := filepath.Join(rig.env.Dir, "pimd.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, "rp-address %v 224.0.0.0/4\nspt-threshold packets 0 interval 5\n", rp), 0o600); err != nil {
		return fmt.Errorf("configure pimd: %w", err)
	}
	for _, r := range rig.net.routers {
		if err := rig.router(ctx, r, file); err != nil {
			return err
		}
	}
	for _, h := range treeGateways {
		a, err := testbed.CountArrivals(rig.lab.Host(h), "eth0")
		if err != nil {
			return err
		}
		rig.arrivals = append(rig.arrivals, a)
	}
	rig.feed, err = testbed.OpenFeed(rig.lab.Host(treeSource))
	return err
}

// router starts pimd with a folder of its own for its files, and counts the messages that the
// router receives.
func (rig *multicastRig) router(ctx context.Context, name, config string) error {
	at := rig.lab.Host(name)
	d, err := testbed.StartDaemon(ctx, at, filepath.Join(rig.env.Dir, "pimd-"+name+".log"),
		"unshare", "--mount", "sh", "-c", `mount -t tmpfs none /run && exec /usr/sbin/pimd -f -s notice -c "$0"`, config)
	if err != nil {
		return err
	}
	rig.daemons = append(rig.daemons, d)
	for i := range rig.interfaces(name) {
		w, err := testbed.WatchFrames(at, fmt.Sprintf("eth%d", i), rig.startReceiving)
		if err != nil {
			return err
		}
		rig.watches = append(rig.watches, w)
	}
	return nil
}

// startReceiving counts messages of the control plane. PIM's Register does not count, because it
// contains a datagram.
func (rig *multicastRig) startReceiving(frame []byte) {
	const ethernet, igmp, pim, register = 14, 2, 103, 1
	h, err := packet.Parse(frame)
	if err != nil || h.EthType != packet.TypeIPv4 || h.Proto != igmp && h.Proto != pim {
		return
	}
	body := frame[ethernet+4*int(frame[ethernet]&0xf):]
	if h.Proto == pim && len(body) > 0 && body[0]&0xf == register {
		return
	}
	rig.control.Add(1)
}

// interfaces returns the links of a node, in the order of its interfaces.
func (rig *multicastRig) interfaces(node string) (links []lab.Link) {
	for _, l := range rig.net.top.Links {
		if l.A.Node == node || l.B.Node == node {
			links = append(links, l)
		}
	}
	return links
}

// linkBytes returns how many bytes routers have sent to each other.
func (rig *multicastRig) linkBytes(context.Context) (map[string]uint64, error) {
	out := map[string]uint64{}
	for _, r := range rig.net.routers {
		for i, l := range rig.interfaces(r) {
			if strings.HasPrefix(l.A.Node, "h") || strings.HasPrefix(l.B.Node, "h") {
				continue
			}
			err := rig.lab.Host(r).Do(func() error {
				device, err := netlink.LinkByName(fmt.Sprintf("eth%d", i))
				if err == nil {
					out[r+" "+l.A.Node+"-"+l.B.Node] = device.Attrs().Statistics.TxBytes
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
