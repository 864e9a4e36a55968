package qos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/classes"
)

// leaves returns the number of the classes' leaves at a port, in the kernel.
func (c *classesLab) leaves(node, link string) int {
	c.t.Helper()
	at := c.at(node, link)
	sw := c.lab.Switch(node)
	text := c.tc(sw, "class", "show", "dev", c.device(sw, int(at.Port)))
	return max(0, countOf(text, "class htb")-3) // the root, and the leaves of traffic without a class and of probes
}

// holds expects a class's leaf and rule on each switch of the line.
func (c *classesLab) holds(classes int) {
	c.t.Helper()
	within(c.t, testTimeout, "every switch has the queues and rules", func() error {
		for _, s := range c.lab.Topology().Switches {
			if n := c.leaves(s.Name, c.out(s.Name)); n != classes {
				return fmt.Errorf("%s has %d leaves, want %d", s.Name, n, classes)
			}
			flows, err := c.lab.Switch(s.Name).Ofctl(context.Background(), "dump-flows")
			if err != nil {
				return err
			}
			if n := countOf(flows, "set_queue:"); n != classes {
				return fmt.Errorf("%s has %d rules, want %d", s.Name, n, classes)
			}
		}
		return nil
	})
}

// TestClassesOutliveRestarts checks that each part that is restarted finds the classes
// again, or gets them again.
func TestClassesOutliveRestarts(t *testing.T) {
	t.Parallel()
	c := newClasses(t, line(), true)
	c.run("of each part", c.restarts)
	c.run("with less capacity", c.onLessCapacity)
}

func (c *classesLab) restarts(t *testing.T) {
	ctx := t.Context()
	s2 := c.lab.Switch("s2")
	if err := s2.StopDatabase(ctx); err != nil {
		t.Fatal(err)
	}
	// A request that arrives while a database is unreachable waits for it, and is refused
	// in time.
	late := make(chan error, 1)
	go func() { _, err := c.request(c.udp("late", "h1", "h3", 7000, 3)); late <- err }()
	if err := s2.StartDatabase(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-late; err != nil {
		t.Fatalf("a class that was asked for while the database restarted: %v", err)
	}
	c.add(c.udp("second", "h1", "h3", 7001, 3))
	c.holds(2)

	t.Log("the switch's daemon")
	if err := s2.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s2.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c.holds(2)
	c.reaches("second", 7001)

	t.Log("the controller")
	before := c.rules("s2")
	c.stop()
	if err := s2.StopDatabase(ctx); err != nil { // and a database with it
		t.Fatal(err)
	}
	if err := s2.StartDatabase(ctx); err != nil {
		t.Fatal(err)
	}
	c.start()
	c.discover()
	c.holds(2)
	if now := c.rules("s2"); now != before {
		t.Errorf("the rules were written again:\n%s\nbefore:\n%s", now, before)
	}
	c.delete("late")
	c.holds(1)
	c.reaches("second", 7001)

	t.Log("somebody removes a queue by hand")
	if _, err := s2.Vsctl(ctx, "clear", "Port", c.device(s2, int(c.at("s2", c.link("s2-s3")).Port)), "qos"); err != nil {
		t.Fatal(err)
	}
	c.holds(1)
}

// reaches floods a class and expects its queues to see it.
func (c *classesLab) reaches(class string, port int) {
	c.t.Helper()
	f := c.floods(5e5, port)
	defer f[0].Stop()
	within(c.t, testTimeout, "the queues of "+class+" see packets", func() error { return seen(c.service, class, 3, 20) })
}

// portIsDown checks that a port keeps its token bucket and its classes while its link is
// down.
func (c *classesLab) portIsDown(t *testing.T) {
	c.add(c.udp("held", "h1", "h3", 7000, 3))
	c.settled(0)
	s2, out := c.lab.Switch("s2"), c.at("s2", c.link("s2-s3"))
	if err := c.lab.SetLink(t.Context(), c.link("s2-s3"), false); err != nil {
		t.Fatal(err)
	}
	within(t, testTimeout, "the port is down", func() error {
		s, _ := c.net.Switch(out.Switch)
		if p, ok := s.Port(out.Port); !ok || p.Up() {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	c.add(c.udp("later", "h1", "h2", 7001, 3)) // its queues are looked at again
	text := c.tc(s2, "qdisc", "show", "dev", c.device(s2, int(out.Port)))
	if n := c.leaves("s2", c.link("s2-s3")); countOf(text, "htb 1:") != 1 || n != 1 {
		t.Errorf("%d classes, %s", n, text)
	}
}

// withdrawn checks that a class that is withdrawn while it is being provisioned leaves
// nothing.
func (c *classesLab) withdrawn(t *testing.T) {
	c.settled(0)
	before := c.prints()
	s2 := c.lab.Switch("s2")
	if err := s2.SuspendDatabase(); err != nil { // provisioning waits for its answer
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := c.request(c.udp("gone", "h1", "h3", 7001, 1)); ended <- err }()
	within(t, testTimeout, "provisioning has begun", func() error {
		if info, ok := c.service.Class("gone"); !ok || info.State != classes.StateProvisioning {
			return errors.New("it has not")
		}
		return nil
	})
	over, cancel := context.WithCancel(t.Context())
	cancel() // so that Withdraw asks for the withdrawal and waits for nothing
	if err := c.service.Withdraw(over, "gone"); !errors.Is(err, context.Canceled) {
		t.Errorf("the withdrawal: %v", err)
	}
	if err := s2.ResumeDatabase(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, classes.ErrWithdrawn) {
		t.Errorf("the request: %v", err)
	}
	c.settled(0)
	within(t, testTimeout, "nothing is left", func() error { return same(before, c.prints()) })
}

// manyAtOnce checks that classes that are requested at once are all in the switches
// afterwards, and are gone completely when they have been withdrawn at once. The experiment
// qos-latency measures how long 200 classes take on 20 switches.
func (c *classesLab) manyAtOnce(t *testing.T) {
	const count = 30
	before := c.prints()
	c.each(count, func(i int) error {
		spec := c.udp(fmt.Sprint("c", i), "h1", "h3", 7000+i, i%8)
		spec.MinRate = "100000"
		_, err := c.request(spec)
		return err
	})
	c.holds(count)
	c.each(count, func(i int) error { return c.service.Declared.Remove(context.Background(), fmt.Sprint("c", i), 0) })
	c.settled(0)
	within(t, testTimeout, "nothing is left", func() error { return same(before, c.prints()) })
}

// each calls f n times concurrently.
func (c *classesLab) each(n int, f func(int) error) {
	c.t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
}

// rules returns the classes' rules in a switch, with their cookies.
func (c *classesLab) rules(node string) string {
	c.t.Helper()
	out := ""
	s, ok := c.net.Switch(openflow.DatapathID(c.lab.Switch(node).DPID()))
	if !ok {
		return out
	}
	for _, r := range s.Rules() {
		if r.Owner == classes.OwnerName {
			out += fmt.Sprintf("%v %v %v\n", r.Cookie, r.Match, r.Actions)
		}
	}
	return out
}
