package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

// iperfPort is iperf3's port, which the experiments whitelist.
const iperfPort = 5201

// line is the long link of an experiment.
type line struct {
	Rate float64 // bit/s of Ethernet frames, as the delay line counts
	RTT  time.Duration
	Loss float64 // 0 to 1, in each direction
	MTU  int
	// Offload lets super-packets pass the switches, as behind any network card, which saves them
	// most of their work. A packet that the controller forwards then has no valid checksum and is
	// lost, so the first SYN of each connection is retransmitted. This does not affect throughput,
	// but set-up times.
	Offload bool
}

func (l line) String() string {
	return fmt.Sprintf("%.0f Mbit/s, %v round trip, %.3g %% loss, MTU %d", l.Rate/1e6, l.RTT, 100*l.Loss, l.MTU)
}

func (l line) params() delayline.Params {
	return delayline.Params{Rate: l.Rate, Delay: l.RTT / 2, Loss: l.Loss}
}

// payload returns the largest TCP payload in bit/s that the link can carry: a full segment has 14
// bytes of Ethernet, 20 of IPv4 and 32 of TCP with timestamps.
func (l line) payload() float64 {
	return l.Rate * float64(l.MTU-52) / float64(l.MTU+14)
}

// site is a lab with a controller and agents that run in it.
type site struct {
	*testbed.Deployment
	lab *lab.Lab
}

// pairName returns the name of an agent or proxy of pair i, from 1.
func pairName(role string, i int) string { return fmt.Sprintf("%s%d", role, i) }

// twoSites returns the topology of most experiments: client and server on two switches with the
// long link between them, and agents on each side (x1.., y1..).
func twoSites(name string, l line, pairs int) lab.Topology {
	t := lab.WAN(name, lab.WANOptions{Rate: l.Rate, RTT: l.RTT, Loss: l.Loss, MTU: l.MTU})
	t.Hosts = []lab.Host{{Name: "client"}, {Name: "server"}}
	t.Links = t.Links[:0]
	join := func(host, sw string) {
		t.Links = append(t.Links, lab.Link{A: lab.End{Node: host}, B: lab.End{Node: sw}, MTU: l.MTU})
	}
	wan := lab.Both("s1", "s2", l.params())
	wan.Name, wan.MTU = "wan", l.MTU
	t.Links = append(t.Links, wan)
	for i := range t.Switches {
		t.Switches[i].Offload = l.Offload
	}
	join("client", "s1")
	join("server", "s2")
	for i := 1; i <= pairs; i++ {
		t.Hosts = append(t.Hosts, lab.Host{Name: pairName("x", i), Agent: true}, lab.Host{Name: pairName("y", i), Agent: true})
		join(pairName("x", i), "s1")
		join(pairName("y", i), "s2")
	}
	for i, h := range t.Hosts {
		if !h.Agent {
			t.Hosts[i] = ordinary(h)
		}
	}
	return t
}

// joinedSites returns two sites with an agent each (x1 and y1), which are joined by one or several
// paths, each through a switch of its own. The links with the given properties are named by
// sitePath.
func joinedSites(name string, mtu int, paths []delayline.Params) lab.Topology {
	t := lab.Topology{
		Name:     name,
		Switches: []lab.Switch{{Name: "s1", Offload: true}, {Name: "s2", Offload: true}},
		Hosts:    []lab.Host{ordinary(lab.Host{Name: "client"}), ordinary(lab.Host{Name: "server"}), {Name: "x1", Agent: true}, {Name: "y1", Agent: true}},
	}
	wire := func(a, b string) { t.Links = append(t.Links, lab.Both(a, b, delayline.Params{})) }
	wire("client", "s1")
	wire("x1", "s1")
	wire("server", "s2")
	wire("y1", "s2")
	for i, p := range paths {
		middle := fmt.Sprintf("s%d", i+3)
		t.Switches = append(t.Switches, lab.Switch{Name: middle, Offload: true})
		long := lab.Both("s1", middle, p)
		long.Name = sitePath(i)
		t.Links = append(t.Links, long)
		wire(middle, "s2")
	}
	for i := range t.Links {
		t.Links[i].MTU = mtu
	}
	return t
}

// sitePath returns the name of the long link of path i, from 0, in joinedSites.
func sitePath(i int) string { return fmt.Sprintf("path%d", i+1) }

// waitPaths waits until the controller knows all links of joinedSites with a number of paths.
func (s *site) waitPaths(ctx context.Context, paths int) error {
	return testbed.Poll(ctx, "the paths", func() error {
		n, err := s.Links(ctx)
		if want := 2 * 2 * paths; err == nil && n < want {
			err = fmt.Errorf("%d of %d links are known", n, want)
		}
		return err
	})
}

// withHost returns a topology with one more host, at a switch.
func withHost(t lab.Topology, h lab.Host, sw string, mtu int) lab.Topology {
	t.Hosts = append(t.Hosts, h)
	t.Links = append(t.Links, lab.Link{A: lab.End{Node: h.Name}, B: lab.End{Node: sw}, MTU: mtu})
	return t
}

// ordinary returns an untuned host, independent of this kernel's default congestion control. It
// keeps no TCP metrics, so that one measurement does not affect the next.
func ordinary(h lab.Host) lab.Host {
	h.Congestion = "cubic"
	h.Sysctls = map[string]string{"net.ipv4.tcp_no_metrics_save": "1"}
	return h
}

// withSite builds a lab, starts controller and agents in it, runs f, and takes everything down
// again, also after an error.
func (e *Env) withSite(ctx context.Context, t lab.Topology, f func(context.Context, *site) error) (err error) {
	return e.withSiteOf(ctx, t, func(*lab.Lab) (string, error) { return "", nil }, f)
}

// withSiteOf does what withSite does, with lines of the controller's configuration for the network.
func (e *Env) withSiteOf(ctx context.Context, t lab.Topology, network func(*lab.Lab) (string, error), f func(context.Context, *site) error) (err error) {
	return e.withLab(ctx, t, func(ctx context.Context, l *lab.Lab) error {
		text, err := network(l)
		if err != nil {
			return err
		}
		d, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: e.Binary, LogDir: e.Dir, Network: text})
		if err != nil {
			return err
		}
		defer d.Close()
		return f(ctx, &site{Deployment: d, lab: l})
	})
}

func (e *Env) withLab(ctx context.Context, t lab.Topology, f func(context.Context, *lab.Lab) error) (err error) {
	if err := lab.Sweep(ctx, lab.Options{}); err != nil {
		e.Logf("labs of ended programs: %v", err)
	}
	l, err := lab.Up(ctx, t, lab.Options{Ephemeral: true, ByThread: true})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, l.Down(ctx))
	}()
	return f(ctx, l)
}

// linkBetween returns the name of the link between two nodes.
func linkBetween(l *lab.Lab, a, b string) (string, error) {
	for _, x := range l.Topology().Links {
		if x.A.Node == a && x.B.Node == b || x.A.Node == b && x.B.Node == a {
			return x.Name, nil
		}
	}
	return "", fmt.Errorf("no link between %s and %s", a, b)
}
