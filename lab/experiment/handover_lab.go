package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

// accessLine describes every link between a device and its edge switch unless an experiment sets
// another: a good radio.
var accessLine = delayline.Params{Rate: 100e6, Delay: 5 * time.Millisecond}

// theDevice is the one host of a mobility lab that moves.
const theDevice = "dev1"

// accessLink returns the name of the link at the device's n-th interface.
func accessLink(n int) string { return fmt.Sprintf("%s-eth%d", theDevice, n) }

// lossy returns parameters that lose every frame while the link still looks up, as of a radio that
// is out of reach.
func lossy(p delayline.Params) delayline.Params {
	p.Loss = 1
	return p
}

// learnAddresses makes all switches plain ones, which learn addresses and have no controller.
func learnAddresses(ctx context.Context, l *lab.Lab) error {
	for _, s := range l.Topology().Switches {
		if _, err := l.Switch(s.Name).Ofctl(ctx, "add-flow", "priority=1,actions=NORMAL"); err != nil {
			return err
		}
	}
	return nil
}

// twoAddresses makes the device one that does not use handover: it gets an address of its own on
// each of its two interfaces, in the domains near and far, which may be the same. It reaches the
// server of near from both.
func twoAddresses(ctx context.Context, l *lab.Lab, near, far lab.MobilityDomain) (first, second netip.Addr, err error) {
	device := l.Host(theDevice)
	var addrs []netip.Addr
	for i, d := range []lab.MobilityDomain{near, far} {
		a := hostOf(d.Prefix, uint16(101+i))
		addrs = append(addrs, a)
		name, table := fmt.Sprintf("eth%d", i), fmt.Sprint(101+i)
		err := runAll(ctx, device,
			"sysctl -qw net.ipv4.conf."+name+".arp_ignore=1 net.ipv4.conf."+name+".arp_announce=2",
			fmt.Sprintf("ip link set %s up", name),
			fmt.Sprintf("ip address add %v/%d dev %s", a, d.Prefix.Bits(), name),
			fmt.Sprintf("ip rule add from %v table %s", a, table),
			fmt.Sprintf("ip route add %v dev %s src %v table %s", d.Prefix, name, a, table),
			fmt.Sprintf("ip route add default via %v dev %s table %s", d.GatewayAddr, name, table))
		if err != nil {
			return first, second, err
		}
	}
	err = runAll(ctx, device, fmt.Sprintf("ip route add default via %v dev eth0", near.GatewayAddr))
	if err != nil {
		return first, second, err
	}
	for _, a := range addrs {
		if err := awaitReachable(ctx, device, a, near.ServerAddr); err != nil {
			return first, second, err
		}
	}
	return addrs[0], addrs[1], nil
}

// oneAddress removes the addresses that twoAddresses has assigned.
func oneAddress(ctx context.Context, l *lab.Lab) error {
	for _, s := range l.Topology().Switches {
		if _, err := l.Switch(s.Name).Ofctl(ctx, "del-flows"); err != nil {
			return err
		}
	}
	return runAll(ctx, l.Host(theDevice),
		"ip address flush dev eth0", "ip address flush dev eth1",
		"ip rule delete table 101", "ip rule delete table 102")
}

// awaitReachable waits until a host gets answers from another host, sent from the given address.
func awaitReachable(ctx context.Context, host *lab.LiveHost, from, to netip.Addr) error {
	return testbed.Poll(ctx, fmt.Sprintf("the way from %v to %v", from, to), func() error {
		out, err := host.Command(ctx, "ping", "-n", "-c", "1", "-W", "1", "-I", from.String(), to.String()).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ping: %w: %s", err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}

// hostOf returns the n-th address of a prefix.
func hostOf(p netip.Prefix, n uint16) netip.Addr {
	b := p.Masked().Addr().As4()
	b[2], b[3] = byte(n>>8), byte(n)
	return netip.AddrFrom4(b)
}

// runAll runs programs at a host, one after the other. Their arguments contain no spaces.
func runAll(ctx context.Context, at testbed.Place, lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := at.Command(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// measurePoints measures each point, after shape has given the lab the point's parameters.
func measurePoints[P, S any](ctx context.Context, env *Env, points []P, repeats int, shape func(context.Context, P) error, measure func(ctx context.Context, p P, repeats int) (S, error)) ([]S, error) {
	all := make([]S, len(points))
	for i, p := range points {
		env.Step("%v", p)
		if err := shape(ctx, p); err != nil {
			return nil, err
		}
		s, err := measure(ctx, p, repeats)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", p, err)
		}
		all[i] = s
	}
	return all, nil
}
