package testbed

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/lab"
)

// Static configures the switches of a lab as an operator would by hand without a controller: the
// switches learn addresses, and their ports have a rate.
type Static struct {
	Lab *lab.Lab
	// Rate is the rate of every port in bit/s, and Packets the length of its queue.
	Rate    float64
	Packets int
}

// FIFO gives every port one queue.
func (s Static) FIFO(ctx context.Context) error {
	return s.each(ctx, []string{"priority=1,actions=NORMAL"}, func(sw *lab.LiveSwitch, device string) error {
		return s.bucket(ctx, sw, device, nil)
	})
}

// Queues gives every port a second queue, and puts the packets of a UDP port into it by OpenFlow.
// This is what the QoS applications of other controllers configure.
func (s Static) Queues(ctx context.Context, port int) error {
	flows := []string{
		"priority=1,actions=NORMAL",
		fmt.Sprintf("priority=9,udp,tp_dst=%d,actions=set_queue:1,NORMAL", port),
		fmt.Sprintf("priority=9,udp,tp_src=%d,actions=set_queue:1,NORMAL", port),
	}
	return s.each(ctx, flows, func(sw *lab.LiveSwitch, device string) error {
		return s.bucket(ctx, sw, device, []string{"--", "--id=@q1", "create", "Queue", fmt.Sprintf("other-config:min-rate=%.0f", s.Rate/10), "other-config:priority=0"})
	})
}

// bucket gives a port a token bucket with a queue for all packets and, if second is given, another
// one.
func (s Static) bucket(ctx context.Context, sw *lab.LiveSwitch, device string, second []string) error {
	queues := "queues=0=@q0"
	if second != nil {
		queues += ",1=@q1"
	}
	args := append([]string{
		"set", "Port", device, "qos=@qos", "--", "--id=@qos", "create", "QoS", "type=linux-htb", fmt.Sprintf("other-config:max-rate=%.0f", s.Rate), queues,
		"--", "--id=@q0", "create", "Queue", "other-config:priority=7",
	}, second...)
	_, err := sw.Vsctl(ctx, args...)
	return err
}

// TC adds classes and filters to the kernel of every switch, as an operator would by hand.
func (s Static) TC(ctx context.Context, port int) error {
	return s.each(ctx, []string{"priority=1,actions=NORMAL"}, func(sw *lab.LiveSwitch, device string) error {
		if _, err := sw.Vsctl(ctx, "set", "Port", device, "qos=@qos", "--", "--id=@qos", "create", "QoS", "type=linux-noop"); err != nil {
			return err
		}
		rate := fmt.Sprintf("%.0fbit", s.Rate)
		return tc(ctx, sw,
			"qdisc replace dev "+device+" root handle 1: htb default 2",
			"class replace dev "+device+" parent 1: classid 1:fffe htb rate "+rate+" ceil "+rate,
			"class replace dev "+device+" parent 1:fffe classid 1:1 htb rate "+fmt.Sprintf("%.0fbit", s.Rate/10)+" ceil "+rate+" prio 0",
			"class replace dev "+device+" parent 1:fffe classid 1:2 htb rate 12kbit ceil "+rate+" prio 7",
			fmt.Sprintf("filter replace dev %s parent 1: protocol ip prio 1 u32 match ip protocol 17 0xff match ip dport %d 0xffff flowid 1:1", device, port),
			fmt.Sprintf("filter replace dev %s parent 1: protocol ip prio 2 u32 match ip protocol 17 0xff match ip sport %d 0xffff flowid 1:1", device, port))
	})
}

// each writes every switch's flows, and configures its ports.
func (s Static) each(ctx context.Context, flows []string, port func(sw *lab.LiveSwitch, device string) error) error {
	for _, spec := range s.Lab.Topology().Switches {
		sw := s.Lab.Switch(spec.Name)
		if err := s.clear(ctx, sw); err != nil {
			return err
		}
		for _, f := range flows {
			if _, err := sw.Ofctl(ctx, "add-flow", f); err != nil {
				return err
			}
		}
		devices, err := devicesOf(ctx, sw)
		if err != nil {
			return err
		}
		for _, d := range devices {
			err := run(ctx, sw, "ip", "link", "set", d, "txqueuelen", fmt.Sprint(s.Packets))
			if err == nil {
				err = port(sw, d)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", sw.Name(), err)
			}
		}
	}
	return nil
}

// Clear removes all of this configuration.
func (s Static) Clear(ctx context.Context) error {
	for _, spec := range s.Lab.Topology().Switches {
		if err := s.clear(ctx, s.Lab.Switch(spec.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (s Static) clear(ctx context.Context, sw *lab.LiveSwitch) error {
	if _, err := sw.Ofctl(ctx, "del-flows"); err != nil {
		return err
	}
	devices, err := devicesOf(ctx, sw)
	if err != nil {
		return err
	}
	for _, d := range devices {
		if _, err := sw.Vsctl(ctx, "clear", "Port", d, "qos"); err != nil {
			return err
		}
		// A discipline that tc has made stays under linux-noop. Without one this fails.
		_ = sw.Command(ctx, "tc", "qdisc", "del", "dev", d, "root").Run()
	}
	_, err = sw.Vsctl(ctx, "--all", "destroy", "QoS", "--", "--all", "destroy", "Queue")
	return err
}

// devicesOf returns the interfaces of a switch's numbered ports.
func devicesOf(ctx context.Context, sw *lab.LiveSwitch) ([]string, error) {
	out, err := sw.Vsctl(ctx, "--bare", "--columns=name", "find", "Interface", "ofport>0", "type!=internal")
	return strings.Fields(out), err
}
