package testbed

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab"
)

// shapedQueue is how long a full packet may wait for its turn on a link. A full queue
// drops its oldest packet: of a port that refuses the newest, Open vSwitch's userspace
// datapath drops all that it has collected.
const shapedQueue = 80 * time.Millisecond

// shapedBurst is how long a link may make up for not having sent when it could have. The
// processor that carries dozens of links does not always come to each of them in time,
// and a virtual machine may stand still for 30 to 60 ms: what does not fit the bucket is
// lost, and the link slower than its rate. It is shorter than the queue, which takes what
// was made up for before.
const shapedBurst = 60 * time.Millisecond

// ShapeLinks gives every link of a lab a rate by the kernel's token bucket. The lab's
// delay line can do more, but takes several times the processor: networks of dozens of
// links that need nothing but rates are slower than the machine that carries them.
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

// shapePort shapes what leaves a switch. Without a QoS record Open vSwitch would remove
// what is not its own.
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

// shapeHost shapes what leaves a host. The host gives its packets to the link one by one:
// of the tens that TCP makes in one piece for a way this short, a bucket would let all go
// at once, and everything else of the host, acknowledgements too, would come in clusters.
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

// run has a program succeed, and tells what it said if it did not.
func run(ctx context.Context, at Place, name string, args ...string) error {
	if out, err := at.Command(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
