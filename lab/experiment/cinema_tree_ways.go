package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// These are the ways that are compared.
const (
	wayCinema    = "cinema"
	wayUnicast   = "unicast"
	wayFlood     = "flooding"
	wayMulticast = "multicast"
)

// treeRig is the network of the experiment with a controller, an ingress gateway, and egress
// gateways that count what their viewers receive.
type treeRig struct {
	*testbed.Deployment
	lab      *lab.Lab
	env      *Env
	feed     *testbed.Feed
	gateways []*testbed.RawGateway
}

// treeMost is the largest number of channels.
const treeMost = 5

// withTree builds the network, runs f, and takes everything down again.
func (e *Env) withTree(ctx context.Context, f func(context.Context, *treeRig) error) error {
	top, roles := treeNetwork("tree")
	return e.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		rig := &treeRig{lab: l, env: e}
		if rig.Deployment, err = testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: e.Binary, LogDir: e.Dir, Gateways: roles}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rig.Deployment.Close()) }()
		defer func() {
			for _, g := range rig.gateways {
				g.Close()
			}
		}()
		for _, h := range treeGateways {
			g, err := testbed.StartRawGateway(ctx, rig.Deployment, h)
			if err != nil {
				return err
			}
			rig.gateways = append(rig.gateways, g)
		}
		if rig.feed, err = testbed.OpenFeed(l.Host(treeSource)); err != nil {
			return err
		}
		defer rig.feed.Close()
		if err := addSilent(ctx, rig.Deployment, treeMost, func(int) string { return treeSource }); err != nil {
			return err
		}
		return f(ctx, rig)
	})
}

// cinema makes viewers join through the controller, counts the copies of their channels, and makes
// the viewers leave.
func (rig *treeRig) cinema(ctx context.Context, load treeLoad) (c treeCost, err error) {
	before, err := rig.messages(ctx)
	if err != nil {
		return c, err
	}
	var all []*testbed.RawViewer
	for i := range load.viewers {
		v, number := rig.gateways[i%len(rig.gateways)].NewViewer(), load.channel(i)
		if err := v.Expect(uint16(number)); err != nil {
			return c, err
		}
		if err := v.Watch(ctx, treeChannel(number)); err != nil {
			return c, err
		}
		all = append(all, v)
	}
	after, err := rig.messages(ctx)
	if err != nil {
		return c, err
	}
	var datagrams []testbed.Datagram
	for n := range load.channels {
		datagrams = append(datagrams, testbed.ChannelDatagram(uint16(n+1), treeSize))
	}
	c, sent, err := counted(ctx, linksOf(rig.lab), treeLasts(rig.env.Scale), func(ctx context.Context) (uint64, error) {
		return rig.feed.Send(ctx, treeEvery, datagrams...)
	})
	if err != nil {
		return c, err
	}
	c.messages = after - before
	for i, v := range all {
		got, err := v.Got(uint16(load.channel(i)))
		if err != nil {
			return c, err
		}
		c.missed += missing(got, sent)
		if err := v.Watch(ctx); err != nil {
			return c, err
		}
	}
	return c, nil
}

// linksOf returns a function that counts the bytes between the switches of a lab.
func linksOf(l *lab.Lab) func(context.Context) (map[string]uint64, error) {
	return func(ctx context.Context) (map[string]uint64, error) { return testbed.LinkBytes(ctx, l) }
}

// channel returns the number of the channel that the i-th viewer watches.
func (l treeLoad) channel(i int) int { return i%l.channels + 1 }

// missing returns the number of datagrams that have not arrived, plus the number of those that have
// arrived more than once.
func missing(got testbed.Arrived, sent uint64) int {
	once := got.Packets - got.Doubled
	return int(max(sent, once)-min(sent, once)) + int(got.Doubled)
}

// messages returns the number of changes of rules and groups that the controller has sent to
// switches so far.
func (rig *treeRig) messages(ctx context.Context) (float64, error) {
	m, err := rig.Metrics(ctx)
	return m.Sum("sluice_network_flow_mods_total") + m.Sum("sluice_network_group_mods_total"), err
}

// unicast sends each viewer its channel, by default forwarding.
func (rig *treeRig) unicast(ctx context.Context, load treeLoad) (c treeCost, err error) {
	const firstPort = 40_000
	var datagrams []testbed.Datagram
	flow := func(i int) testbed.PortPair {
		return testbed.PortPair{From: uint16(firstPort + i), To: uint16(firstPort + i)}
	}
	for i := range load.viewers {
		at := rig.lab.Host(treeGateways[i%len(treeGateways)])
		datagrams = append(datagrams, testbed.Datagram{
			From: flow(i).From, To: netip.AddrPortFrom(at.Addr(), flow(i).To), MAC: at.MAC(), Size: treeSize,
		})
	}
	warm, cancel := context.WithTimeout(ctx, time.Second) // the controller installs rules for the first datagrams
	defer cancel()
	if _, err := rig.feed.Send(warm, treeEvery, datagrams...); err != nil {
		return c, err
	}
	if err := tasks.Sleep(ctx, maxInFlight); err != nil {
		return c, err
	}
	at := func(i int) *testbed.Arrivals { return rig.gateways[i%len(rig.gateways)].Arrivals }
	return delivered(ctx, rig.lab, treeLasts(rig.env.Scale), load.viewers, at, flow, func(ctx context.Context) (uint64, error) {
		return rig.feed.Send(ctx, treeEvery, datagrams...)
	})
}

// delivered counts the datagrams on links and those that reach viewers while send runs. at returns
// where the datagrams of each viewer arrive, and flow returns the ports by which they are
// identified there.
func delivered(ctx context.Context, l *lab.Lab, lasts time.Duration, viewers int, at func(int) *testbed.Arrivals, flow func(int) testbed.PortPair,
	send func(context.Context) (uint64, error),
) (c treeCost, err error) {
	for i := range viewers {
		if err := at(i).Expect(flow(i)); err != nil {
			return c, err
		}
	}
	c, sent, err := counted(ctx, linksOf(l), lasts, send)
	for i := range viewers {
		if err != nil {
			break
		}
		var got testbed.Arrived
		got, err = at(i).Of(flow(i))
		c.missed += missing(got, sent)
	}
	return c, err
}

// floodRig is the network of the experiment without a controller. Each channel that is watched is
// sent to all switches along a fixed tree, as the original system did.
type floodRig struct {
	lab      *lab.Lab
	env      *Env
	feed     *testbed.Feed
	arrivals []*testbed.Arrivals
}

func (e *Env) withFlood(ctx context.Context, f func(context.Context, *floodRig) error) error {
	top, _ := treeNetwork("flood")
	return e.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		rig := &floodRig{lab: l, env: e}
		defer func() {
			for _, a := range rig.arrivals {
				a.Close()
			}
		}()
		for _, h := range treeGateways {
			a, err := testbed.CountArrivals(l.Host(h), "eth0")
			if err != nil {
				return err
			}
			rig.arrivals = append(rig.arrivals, a)
		}
		if rig.feed, err = testbed.OpenFeed(l.Host(treeSource)); err != nil {
			return err
		}
		defer rig.feed.Close()
		return f(ctx, rig)
	})
}

const floodFirstPort = 10_000

// flood installs the rules of the original system in the switches, and counts the copies of the
// channels.
func (rig *floodRig) flood(ctx context.Context, load treeLoad) (c treeCost, err error) {
	var datagrams []testbed.Datagram
	for n := range min(load.channels, load.viewers) { // the other channels have no viewers
		datagrams = append(datagrams, testbed.ChannelDatagram(uint16(n+1), treeSize))
	}
	flow := func(i int) testbed.PortPair {
		return testbed.PortPair{From: testbed.ChannelDatagram(uint16(load.channel(i)), treeSize).From, To: uint16(floodFirstPort + i)}
	}
	if err := rig.program(ctx, load, flow); err != nil {
		return c, err
	}
	at := func(i int) *testbed.Arrivals { return rig.arrivals[i%len(rig.arrivals)] }
	return delivered(ctx, rig.lab, treeLasts(rig.env.Scale), load.viewers, at, flow, func(ctx context.Context) (uint64, error) {
		return rig.feed.Send(ctx, treeEvery, datagrams...)
	})
}

// program replaces the rules and groups of all switches.
func (rig *floodRig) program(ctx context.Context, load treeLoad, flow func(int) testbed.PortPair) error {
	tree := spanning(rig.lab.Topology(), "s1")
	var all errgroup.Group
	for _, s := range rig.lab.Topology().Switches {
		all.Go(func() error { return rig.programSwitch(ctx, s.Name, tree[s.Name], load, flow) })
	}
	return all.Wait()
}

func (rig *floodRig) programSwitch(ctx context.Context, name string, children []string, load treeLoad, flow func(int) testbed.PortPair) error {
	sw := rig.lab.Switch(name)
	for _, command := range []string{"del-flows", "del-groups"} {
		if _, err := sw.Ofctl(ctx, command); err != nil {
			return err
		}
	}
	onward := ""
	for _, link := range children {
		port, err := sw.Port(link)
		if err != nil {
			return err
		}
		onward += fmt.Sprintf(",output:%d", port)
	}
	for number := 1; number <= load.channels; number++ {
		actions := onward
		buckets, err := rig.buckets(name, number, load, flow)
		if err != nil {
			return err
		}
		if buckets != "" {
			if _, err := sw.Ofctl(ctx, "add-group", fmt.Sprintf("group_id=%d,type=all%s", number, buckets)); err != nil {
				return err
			}
			actions += fmt.Sprintf(",group:%d", number)
		}
		if actions == "" {
			continue
		}
		from := testbed.ChannelDatagram(uint16(number), treeSize)
		rule := fmt.Sprintf("priority=1,udp,nw_dst=%v,tp_src=%d,actions=%s", from.To.Addr(), from.From, actions[1:])
		if _, err := sw.Ofctl(ctx, "add-flow", rule); err != nil {
			return err
		}
	}
	return nil
}

// buckets returns the buckets of a channel's viewers at a switch.
func (rig *floodRig) buckets(name string, number int, load treeLoad, flow func(int) testbed.PortPair) (text string, err error) {
	for i := range load.viewers {
		host := treeGateways[i%len(treeGateways)]
		if load.channel(i) != number || "s"+host[1:] != name {
			continue
		}
		port, err := rig.lab.Switch(name).Port(host + "-" + name)
		if err != nil {
			return "", err
		}
		h := rig.lab.Host(host)
		mac := h.MAC()
		text += fmt.Sprintf(",bucket=mod_dl_dst:%x:%x:%x:%x:%x:%x,mod_nw_dst:%v,mod_tp_dst:%d,output:%d",
			mac[0], mac[1], mac[2], mac[3], mac[4], mac[5], h.Addr(), flow(i).To, port)
	}
	return text, nil
}

// spanning returns a tree over all switches from root: for each switch, the links by which it
// forwards to others.
func spanning(t lab.Topology, root string) map[string][]string {
	onward, reached := map[string][]string{}, map[string]bool{root: true}
	for queue := []string{root}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, l := range t.Links {
			other := l.B.Node
			if other == at {
				other = l.A.Node
			} else if l.A.Node != at {
				continue
			}
			if other[0] != 's' || reached[other] {
				continue
			}
			reached[other] = true
			onward[at] = append(onward[at], l.Name)
			queue = append(queue, other)
		}
	}
	return onward
}
