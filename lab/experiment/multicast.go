package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	// pimdReady is how long pimd gets to find its neighbours, and pimdSettles how long to change to
	// the shortest path from the source.
	pimdReady, pimdSettles = 10 * time.Second, 6 * time.Second
	// afterLeave is the time without datagrams of a group after which leaving it counts as
	// complete. A router forwards the group until it has asked whether others want it.
	afterLeave = 3 * time.Second
)

// hasPimd reports whether IP multicast can be measured.
func hasPimd() bool {
	_, err := exec.LookPath("/usr/sbin/pimd")
	return err == nil
}

// group returns the address of the n-th group, and datagrams to it.
func group(n int) (addr netip.Addr, d testbed.Datagram) {
	addr = netip.AddrFrom4([4]byte{239, 1, byte(n >> 8), byte(n)})
	return addr, testbed.Datagram{
		From: gatewayapi.SourcePort(uint16(n)), To: netip.AddrPortFrom(addr, gatewayapi.MediaPort),
		MAC: openflow.MAC{0x01, 0x00, 0x5e, 1, byte(n >> 8), byte(n)}, Size: treeSize,
	}
}

func groupFlow(n int) testbed.PortPair {
	return testbed.PortPair{From: gatewayapi.SourcePort(uint16(n)), To: gatewayapi.MediaPort}
}

// multicast lets viewers join groups that nobody has used before, and counts the control messages
// and the copies of datagrams.
func (rig *multicastRig) multicast(ctx context.Context, load treeLoad) (c treeCost, err error) {
	base := rig.groups
	rig.groups += load.channels
	sending, cancel := context.WithCancel(ctx)
	var all []testbed.Datagram
	for n := range min(load.channels, load.viewers) {
		_, d := group(base + n + 1)
		all = append(all, d)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := rig.feed.Send(sending, treeEvery, all...)
		sent <- err
	}()
	defer func() {
		cancel()
		if failed := <-sent; err == nil {
			err = failed
		}
	}()
	before := rig.control.Load()
	joined, err := rig.join(ctx, load, base)
	defer func() {
		for _, s := range joined {
			s.Close()
		}
	}()
	if err != nil {
		return c, err
	}
	messages := float64(rig.control.Load() - before)
	cancel()
	if err := <-sent; err != nil {
		return c, err
	}
	sent <- nil // for a receiver that waits at the end
	if err := tasks.Sleep(ctx, maxInFlight); err != nil {
		return c, err
	}
	c, err = rig.steady(ctx, load, base, all)
	c.messages = messages
	return c, err
}

// join joins each group by its first viewer at each host, as a host's kernel does for all viewers,
// and waits until the group arrives by the shortest path.
func (rig *multicastRig) join(ctx context.Context, load treeLoad, base int) (joined []*testbed.Membership, err error) {
	seen := map[[2]int]bool{}
	for i := range load.viewers {
		at, n := i%len(treeGateways), base+load.channel(i)
		if seen[[2]int{at, n}] {
			continue
		}
		seen[[2]int{at, n}] = true
		if err := rig.arrivals[at].Expect(groupFlow(n)); err != nil {
			return joined, err
		}
		addr, _ := group(n)
		m, err := testbed.JoinGroup(rig.lab.Host(treeGateways[at]), addr)
		if err != nil {
			return joined, err
		}
		joined = append(joined, m)
	}
	for x := range seen {
		if _, err := rig.first(ctx, x[0], x[1]); err != nil {
			return joined, err
		}
	}
	return joined, tasks.Sleep(ctx, pimdSettles)
}

// joinedWithin is how long a host may wait for a group. A join that another router has missed is
// sent again each minute (RFC 7761, 4.11).
const joinedWithin = 100 * time.Second

// first waits for the first datagram of a group at a host.
func (rig *multicastRig) first(ctx context.Context, at, n int) (first time.Duration, err error) {
	err = testbed.PollFor(ctx, joinedWithin, "the first packet", func() error {
		got, err := rig.arrivals[at].Of(groupFlow(n))
		if err == nil && got.Packets == 0 {
			err = fmt.Errorf("nothing of group %d has come to %s", n, treeGateways[at])
		}
		first = got.First
		return err
	})
	return first, err
}

// steady counts the copies that links carry while nobody joins or leaves.
func (rig *multicastRig) steady(ctx context.Context, load treeLoad, base int, all []testbed.Datagram) (c treeCost, err error) {
	for i := range load.viewers {
		if err := rig.arrivals[i%len(treeGateways)].Expect(groupFlow(base + load.channel(i))); err != nil {
			return c, err
		}
	}
	c, sent, err := counted(ctx, rig.linkBytes, treeLasts(rig.env.Scale), func(ctx context.Context) (uint64, error) {
		return rig.feed.Send(ctx, treeEvery, all...)
	})
	for i := range load.viewers {
		if err != nil {
			break
		}
		var got testbed.Arrived
		got, err = rig.arrivals[i%len(treeGateways)].Of(groupFlow(base + load.channel(i)))
		c.missed += missing(got, sent)
	}
	return c, err
}

// multicastTimes measures the actions that concern a viewer's router.
func (e *Env) multicastTimes(ctx context.Context, rig *multicastRig) (*treeTimes, error) {
	raw, err := e.CSV("times-multicast", "what", "seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	t := &treeTimes{took: map[string][]float64{}, raw: raw}
	for range pick(e.Scale, 1, 5, 20) {
		if err := rig.times(ctx, t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// times makes a viewer join, change and leave. It leaves out actions that concern only the kernel
// of the viewer's host.
func (rig *multicastRig) times(ctx context.Context, t *treeTimes) (err error) {
	one, two := rig.groups+1, rig.groups+2
	rig.groups += 2
	sending, cancel := context.WithCancel(ctx)
	sent := make(chan error, 1)
	go func() {
		_, a := group(one)
		_, b := group(two)
		_, err := rig.feed.Send(sending, timedEvery, a, b)
		sent <- err
	}()
	defer func() {
		cancel()
		if failed := <-sent; err == nil {
			err = failed
		}
	}()
	if err := tasks.Sleep(ctx, 2*time.Second); err != nil { // until the rendezvous point has learned of the source
		return err
	}
	here, err := rig.timedJoin(ctx, t, joinInitial, timedHere, one)
	if err != nil {
		return err
	}
	if err := rig.timedLeave(ctx, t, here, one); err != nil {
		return err
	}
	there, err := rig.timedJoin(ctx, t, "", timedThere, one)
	if err != nil {
		return err
	}
	defer there.Close()
	if here, err = rig.timedJoin(ctx, t, joinRemote, timedHere, one); err != nil {
		return err
	}
	changed, err := rig.timedJoin(ctx, t, zapRemote, timedHere, two)
	here.Close()
	if err == nil {
		changed.Close()
	}
	return err
}

func (rig *multicastRig) timedJoin(ctx context.Context, t *treeTimes, act string, at, n int) (*testbed.Membership, error) {
	if err := rig.arrivals[at].Expect(groupFlow(n)); err != nil {
		return nil, err
	}
	addr, _ := group(n)
	began := testbed.Uptime()
	m, err := testbed.JoinGroup(rig.lab.Host(treeGateways[at]), addr)
	if err != nil {
		return nil, err
	}
	first, err := rig.first(ctx, at, n)
	if err != nil {
		m.Close()
		return nil, err
	}
	if act == "" {
		return m, nil
	}
	return m, t.note(act, first-began)
}

func (rig *multicastRig) timedLeave(ctx context.Context, t *treeTimes, m *testbed.Membership, n int) error {
	began := testbed.Uptime()
	m.Close()
	for {
		if err := tasks.Sleep(ctx, maxInFlight); err != nil {
			return err
		}
		got, err := rig.arrivals[timedHere].Of(groupFlow(n))
		if err != nil {
			return err
		}
		switch now := testbed.Uptime(); {
		case now-got.Last > afterLeave:
			return t.note(leaveLast, max(got.Last-began, 0))
		case now-began > time.Minute:
			return fmt.Errorf("%v after a viewer has left its group still comes", now-began)
		}
	}
}
