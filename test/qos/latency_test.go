package qos

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/classes"
)

// line returns three switches in a row with two hosts at each end.
func line() lab.Topology {
	t := lab.Line("qline", 3, delayline.Params{})
	t.Hosts = append(t.Hosts, lab.Host{Name: "x1"}, lab.Host{Name: "x3"})
	t.Links = append(t.Links, lab.Link{A: lab.End{Node: "x1"}, B: lab.End{Node: "s1"}}, lab.Link{A: lab.End{Node: "x3"}, B: lab.End{Node: "s3"}})
	return t
}

// floodBytes is the payload of each packet of a flood.
const floodBytes = 1400

// floods starts a flood to each of the UDP ports, from h1 to h3. The rate is in bit/s of
// payload.
func (c *classesLab) floods(rate float64, ports ...int) []*testbed.Flooding {
	c.t.Helper()
	var out []*testbed.Flooding
	for _, p := range ports {
		f, err := testbed.Flood{
			From: c.lab.Host("h1"), To: c.lab.Host("h3"), Dst: netip.AddrPortFrom(c.addr("h3"), uint16(p)), Rate: rate, Bytes: floodBytes,
		}.Start(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(f.Stop)
		out = append(out, f)
	}
	return out
}

// out returns the link by which packets from h1 to h3 leave each switch of the line.
func (c *classesLab) out(node string) string {
	return c.link(map[string]string{"s1": "s1-s2", "s2": "s2-s3", "s3": "h3-s3"}[node])
}

// kernelClasses returns what tc shows of the kernel's classes at the port by which packets
// from h1 to h3 leave a switch.
func (c *classesLab) kernelClasses(node string) string {
	c.t.Helper()
	sw := c.lab.Switch(node)
	return c.tc(sw, "class", "show", "dev", c.device(sw, int(c.at(node, c.out(node)).Port)))
}

// queued returns how many packets the queues of all classes have sent, according to the
// switches, at the ports by which packets from h1 to h3 leave.
func (c *classesLab) queued() (packets []uint64) {
	c.t.Helper()
	for _, node := range []string{"s1", "s2", "s3"} {
		at := c.at(node, c.out(node))
		s, ok := c.net.Switch(at.Switch)
		if !ok {
			c.t.Fatalf("switch %s has gone", node)
		}
		stats, err := s.QueueStats(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		var sum uint64
		for _, q := range stats {
			if q.Port == at.Port && q.Queue > 0 && q.Queue <= classes.MaxClasses {
				sum += q.TxPackets
			}
		}
		packets = append(packets, sum)
	}
	return packets
}

// TestSmokeClass checks that a class has a queue with the requested rates on each switch of
// its path, and that the queue sends the packets of the class and no others.
func TestSmokeClass(t *testing.T) {
	t.Parallel()
	c := newClasses(t, line(), true)
	spec := c.udp("held", "h1", "h3", 7001, 0)
	spec.MinRate, spec.MaxRate = "3000000", "8000000"
	c.add(spec)
	c.holds(1)
	for _, node := range []string{"s1", "s2", "s3"} {
		if text := c.kernelClasses(node); !strings.Contains(text, "rate 3Mbit ceil 8Mbit") {
			t.Errorf("%s has no queue of the class's rates:\n%s", node, text)
		}
	}
	plain := c.floods(5e5, 7002)[0]
	within(t, testTimeout, "packets without a class arrive", func() error {
		if n, _ := plain.Received(); n < 100 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	for i, n := range c.queued() {
		if n != 0 {
			t.Errorf("the class's queue at switch %d has sent %d packets that are not the class's", i+1, n)
		}
	}
	ofClass := c.floods(5e5, 7001)[0]
	within(t, testTimeout, "the class's packets are sent by its queues and arrive", func() error {
		for _, n := range c.queued() {
			if n < 100 {
				return fmt.Errorf("%v by switch", c.queued())
			}
		}
		if n, _ := ofClass.Received(); n < 100 {
			return fmt.Errorf("%d have arrived", n)
		}
		return nil
	})
	c.delete("held")
	c.holds(0)
}

// TestClasses adds and removes classes of all kinds on one network.
func TestClasses(t *testing.T) {
	t.Parallel()
	c := newClasses(t, line(), false)
	c.run("without effect", func(sub *testing.T) { c.withoutEffect(sub, t) })
	c.settled(0)
	c.run("eight priorities", c.eightPriorities)
	c.run("DSCP is restored", c.dscpIsRestored)
	c.run("two for one flow", c.twoForOneFlow)
	c.run("fragments", c.fragments)
	c.run("critical flow is taken over", c.takesOverCriticalFlow)
	c.run("many at once", c.manyAtOnce)
	c.run("withdrawn while it is provisioned", c.withdrawn)
	c.run("port is down", c.portIsDown)
}

// eightPriorities checks that the kernel gets the priorities and guaranteed rates of
// classes. The experiment qos-latency measures how it shares a link between them.
func (c *classesLab) eightPriorities(t *testing.T) {
	for i := range 8 {
		spec := c.udp(fmt.Sprint("class", i), "h1", "h3", 7000+i, i)
		spec.MinRate = text(100_000 * (i + 1))
		c.add(spec)
	}
	c.holds(8)
	for _, node := range []string{"s1", "s2", "s3"} {
		text := c.kernelClasses(node)
		for i := range 8 {
			if want := fmt.Sprintf("prio %d rate %dKbit ceil 10Mbit", i, 100*(i+1)); !strings.Contains(text, want) {
				t.Errorf("%s has no queue of %q:\n%s", node, want, text)
			}
		}
	}
}

// dscpIsRestored checks that no mark of a class leaves a switch. The destination receives
// the DSCP that the source has sent, and so does a class that names a DSCP.
func (c *classesLab) dscpIsRestored(t *testing.T) {
	marked := c.udp("marked", "h1", "h3", 7001, 1)
	marked.Flows[0].IPDSCP = "46"
	c.add(marked)
	c.add(c.udp("plain", "h1", "h3", 7002, 2))
	for _, x := range []struct {
		class string
		port  uint16
		dscp  uint8
	}{{"marked", 7001, 46}, {"plain", 7002, 0}} {
		got, err := testbed.SeenDSCP(t.Context(), c.lab.Host("h1"), c.lab.Host("h3"), netip.AddrPortFrom(c.addr("h3"), x.port), x.dscp, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[x.dscp] == 0 {
			t.Errorf("class %s: packets with DSCP %d arrive as %v", x.class, x.dscp, got)
		}
		within(t, testTimeout, "the queues of "+x.class+" have seen the packets", func() error { return seen(c.service, x.class, 3, 50) })
	}
}

// seen returns an error unless the given number of a class's queues have sent the given
// number of packets.
func seen(s *classes.Service, class string, queues int, packets uint64) error {
	stats, _ := s.Stats(class)
	n := 0
	for _, q := range stats.Queues {
		if q.Packets >= packets {
			n++
		}
	}
	if n < queues {
		return fmt.Errorf("%+v", stats.Queues)
	}
	return nil
}

// withoutEffect checks that a class has no effect without a classifier on a userspace
// datapath. The service reports it, and no packet is marked. Once classifiers run, the
// class has an effect, and still no mark leaves a switch. The classifiers run until whole
// ends.
func (c *classesLab) withoutEffect(t, whole *testing.T) {
	if made := c.add(c.udp("quiet", "h1", "h3", 7001, 1)); made.State != classes.StateIneffective {
		t.Errorf("it is said to be %s", made.State)
	}
	unmarked := func() {
		t.Helper()
		got, err := testbed.SeenDSCP(t.Context(), c.lab.Host("h1"), c.lab.Host("h3"), netip.AddrPortFrom(c.addr("h3"), 7001), 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0] == 0 {
			t.Errorf("packets arrive with DSCPs %v", got)
		}
	}
	unmarked()
	info, _ := c.service.Class("quiet")
	t.Log(info.Reason)
	c.startClassifiers(whole)
	within(t, testTimeout, "the class is active", func() error {
		if info, _ := c.service.Class("quiet"); info.State != classes.StateActive {
			return fmt.Errorf("it is %s: %s", info.State, info.Reason)
		}
		return nil
	})
	unmarked()
	c.reaches("quiet", 7001)
	within(t, testTimeout, "both are said", func() error {
		kinds := c.published()
		if !slices.Contains(kinds, "qos.class.ineffective") || !slices.Contains(kinds, "qos.class.effective") {
			return fmt.Errorf("events %v", kinds)
		}
		return nil
	})
}
