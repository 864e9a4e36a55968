package testbed

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab"
)

// shapedQueue is how long a full packet may wait in a link's queue. A full queue drops its oldest
// packet. If it refused the newest one instead, Open vSwitch's userspace datapath would drop all
// packets that it has collected for the port.
const shapedQueue = 80 * time.Millisecond

// shapedBurst is the sending time that a link may make up for after a delay. The processor that
// carries dozens of links does not always serve each of them in time, and a virtual machine may
// pause for 30 to 60 ms. A link loses delays beyond shapedBurst, and is then slower than its rate.
// shapedBurst is shorter than shapedQueue, so that the queue holds the packets that are sent in
// such a burst.
const shapedBurst = 60 * time.Millisecond

// ShapeLinks gives every link of a lab a rate by the kernel's token bucket. The lab's delay line
// can do more, but needs several times the processor time: networks of dozens of links that need
// only rates would be slower than the machine that carries them.
func ShapeLinks(ctx context.Context, l *lab.Lab, rate func(lab.Link) float64) error {
	t := l.Topology()
	isSwitch := map[string]bool{}
	for _, s := range t.Switches {
		isSwitch[s.Name] = true
	}
	for _, link := range t.Links {
		for _, end := range []lab.End{link.A, link.B} {
			var err error
			if isSwitch[end.Node] {
				err = shapePort(ctx, l.Switch(end.Node), link.Name, rate(link))
			} else {
				err = shapeHost(ctx, l.Host(end.Node), rate(link))
			}
			if err != nil {
				return fmt.Errorf("link %s at %s: %w", link.Name, end.Node, err)
			}
		}
	}
	return nil
}

// shapePort shapes the packets that leave a switch. Without a QoS record Open vSwitch would remove
// a discipline that it has not made.
func shapePort(ctx context.Context, s *lab.LiveSwitch, link string, rate float64) error {
	port, err := s.Port(link)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("eth%d", port)
	if _, err := s.Vsctl(ctx, "--id=@q", "create", "QoS", "type=linux-noop", "--", "set", "Port", name, "qos=@q"); err != nil {
		return err
	}
	return shape(ctx, s, name, rate)
}

// shapeHost shapes the packets that leave a host. The host passes its packets to the link one by
// one. TCP would otherwise pass tens of packets in one piece on such a short path, and a bucket
// would let them all go at once: all other packets of the host, acknowledgements included, would be
// sent in clusters.
func shapeHost(ctx context.Context, h Place, rate float64) error {
	const name = "eth0"
	if err := run(ctx, h, "ip", "link", "set", "dev", name, "gso_max_segs", "1"); err != nil {
		return err
	}
	return shape(ctx, h, name, rate)
}

func shape(ctx context.Context, at Place, name string, rate float64) error {
	return tc(ctx, at,
		fmt.Sprintf("qdisc replace dev %s root handle 1: tbf rate %.0fbit burst %.0f latency %v", name, rate, rate/8*shapedBurst.Seconds(), shapedQueue),
		fmt.Sprintf("qdisc replace dev %s parent 1: pfifo_head_drop limit %.0f", name, rate/8*shapedQueue.Seconds()/1514))
}

func tc(ctx context.Context, at Place, lines ...string) error {
	for _, line := range lines {
		if err := run(ctx, at, "tc", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program, and returns an error with its output if it fails.
func run(ctx context.Context, at Place, name string, args ...string) error {
	if out, err := at.Command(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
