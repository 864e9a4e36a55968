package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/race"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/latency"
)

// leaves counts the classes' leaves at a port, in the kernel.
func (c *classes) leaves(node, link string) int {
	c.t.Helper()
	at := c.at(node, link)
	sw := c.lab.Switch(node)
	text := c.tc(sw, "class", "show", "dev", c.device(sw, int(at.Port)))
	return max(0, countOf(text, "class htb")-3) // the root, and the leaves of traffic without a class and of probes
}

// holds expects a class's leaf and rule on each switch of the line.
func (c *classes) holds(classes int) {
	c.t.Helper()
	within(c.t, 15*time.Second, "every switch has the queues and rules", func() error {
		for _, s := range c.lab.Topology().Switches {
			out := "h3-s3"
			switch s.Name {
			case "s1":
				out = "s1-s2"
			case "s2":
				out = "s2-s3"
			}
			if n := c.leaves(s.Name, c.link(out)); n != classes {
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

// Each part that is restarted finds the classes again, or is given them again.
func TestRestarts(t *testing.T) {
	c := newClasses(t, line(), true)
	ctx := t.Context()
	s2 := c.lab.Switch("s2")
	if err := s2.StopDatabase(ctx); err != nil {
		t.Fatal(err)
	}
	// What is asked for while a database is away waits for it, and is refused in time.
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
func (c *classes) reaches(class string, port int) {
	c.t.Helper()
	f := c.floods(5e5, port)
	defer f[0].Stop()
	within(c.t, 15*time.Second, "the queues of "+class+" see packets", func() error { return seen(c.service, class, 3, 20) })
}

// A port keeps its bucket, with the classes in it, while its link is down.
func TestBucketOfPortThatIsDown(t *testing.T) {
	c := newClasses(t, line(), true)
	c.add(c.udp("held", "h1", "h3", 7000, 3))
	c.settled(0)
	s2, out := c.lab.Switch("s2"), c.at("s2", c.link("s2-s3"))
	if err := c.lab.SetLink(t.Context(), c.link("s2-s3"), false); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the port is down", func() error {
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

// A class that is withdrawn while it is being provisioned leaves nothing.
func TestWithdrawn(t *testing.T) {
	c := newClasses(t, line(), true)
	c.settled(0)
	before := c.prints()
	s2 := c.lab.Switch("s2")
	if err := s2.StopDatabase(t.Context()); err != nil { // provisioning waits for it
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := c.request(c.udp("gone", "h1", "h3", 7001, 1)); ended <- err }()
	within(t, 5*time.Second, "provisioning has begun", func() error {
		if info, ok := c.service.Class("gone"); !ok || info.State != latency.StateProvisioning {
			return errors.New("it has not")
		}
		return nil
	})
	withdrawn := make(chan error, 1)
	go func() { withdrawn <- c.service.Withdraw(context.Background(), "gone") }()
	if err := s2.StartDatabase(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, latency.ErrWithdrawn) {
		t.Errorf("the request: %v", err)
	}
	if err := <-withdrawn; err != nil {
		t.Errorf("the withdrawal: %v", err)
	}
	c.settled(0)
	within(t, 10*time.Second, "nothing is left", func() error { return same(before, c.prints()) })
}

// Two hundred classes on twenty switches are there within five seconds, and gone
// without a trace.
func TestManyClasses(t *testing.T) {
	const switches, count = 20, 200
	c := newClasses(t, lab.Line("qmany", switches, delayline.Params{}), true)
	c.settled(0)
	for i := 1; i <= switches; i++ { // so that their places are known
		if _, err := c.net.ResolveHost(t.Context(), c.addr(fmt.Sprint("h", i))); err != nil {
			t.Fatal(err)
		}
	}
	before := c.prints()
	began := time.Now()
	c.each(count, func(i int) error {
		from := i%(switches-2) + 1 // three switches each
		spec := c.udp(fmt.Sprint("c", i), fmt.Sprint("h", from), fmt.Sprint("h", from+2), 7000+i, i%8)
		spec.MinRate = "100000"
		_, err := c.request(spec)
		return err
	})
	added := time.Since(began)
	during := c.prints()
	began = time.Now()
	c.each(count, func(i int) error { return c.service.Declared.Remove(context.Background(), fmt.Sprint("c", i), 0) })
	t.Logf("%d classes on %d switches: provisioned in %v, removed in %v", count, switches, added, time.Since(began))
	if added > 5*time.Second && !race.Enabled {
		t.Errorf("provisioning took %v", added)
	}
	if same(before, during) == nil {
		t.Error("the classes are not in the switches")
	}
	c.settled(0)
	within(t, 10*time.Second, "nothing is left", func() error { return same(before, c.prints()) })
}

// each runs f many times at once.
func (c *classes) each(n int, f func(int) error) {
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

// rules are the classes' rules of a switch, with their cookies.
func (c *classes) rules(node string) string {
	c.t.Helper()
	out := ""
	s, ok := c.net.Switch(openflow.DatapathID(c.lab.Switch(node).DPID()))
	if !ok {
		return out
	}
	for _, r := range s.Rules() {
		if r.Owner == latency.OwnerName {
			out += fmt.Sprintf("%v %v %v\n", r.Cookie, r.Match, r.Actions)
		}
	}
	return out
}
