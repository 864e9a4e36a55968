package qos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/store/memstore"
)

const (
	// linkRate is the rate of every port, in bit/s.
	linkRate = 10_000_000
	// Probes of links are sent at this interval, and a link is dead when none has arrived
	// for discoveryTimeout.
	discoveryInterval = 250 * time.Millisecond
	discoveryTimeout  = 5 * time.Second
)

// classesLab is a lab with the latency service: the network and the service run in the test's
// process, the classifiers beside the switches.
type classesLab struct {
	t     *testing.T
	lab   *lab.Lab
	store *memstore.Store
	rate  uint64 // of every port, in bit/s

	net      *network.Network
	service  *classes.Service
	critical *critical.Service
	held     *guard.Guard
	book     *reserve.Book
	bus      *event.Bus
	stop     func()
}

// run runs a subtest that shares the network. Its classes are withdrawn when it ends.
func (c *classesLab) run(name string, f func(t *testing.T)) {
	outer := c.t
	outer.Run(name, func(t *testing.T) {
		c.t = t
		defer func() { c.t = outer }()
		t.Cleanup(func() {
			for _, info := range c.service.Classes() {
				if err := c.service.Declared.Remove(context.Background(), info.Name, 0); err != nil {
					t.Errorf("class %s is not withdrawn: %v", info.Name, err)
				}
			}
		})
		f(t)
	})
}

// newClasses builds a network whose ports all have linkRate.
func newClasses(t *testing.T, topology lab.Topology, classifiers bool) *classesLab {
	t.Helper()
	return newClassesOf(t, topology, linkRate, classifiers)
}

// newClassesOf builds a network whose ports all have the given rate.
func newClassesOf(t *testing.T, topology lab.Topology, rate uint64, classifiers bool) *classesLab {
	t.Helper()
	c := &classesLab{t: t, lab: lab.New(t, topology), store: memstore.New(), rate: rate}
	if classifiers {
		c.startClassifiers(t)
	}
	c.start()
	t.Cleanup(func() { c.stop() })
	c.discover()
	return c
}

// startClassifiers runs a classifier in each switch's namespace until a test ends.
func (c *classesLab) startClassifiers(until *testing.T) {
	c.t.Helper()
	binary := selfbuild.Binary(c.t)
	for _, s := range c.lab.Topology().Switches {
		sw := c.lab.Switch(s.Name)
		d, err := testbed.StartDaemon(context.WithoutCancel(until.Context()), sw, until.TempDir()+"/log", binary, "classifier", "--database", sw.Database())
		if err != nil {
			c.t.Fatal(err)
		}
		until.Cleanup(d.Stop)
	}
}

// start runs controller and service; their store survives them.
func (c *classesLab) start() {
	c.t.Helper()
	listener, err := c.lab.Control().Listen("tcp", c.lab.ControllerAddr().String())
	if err != nil {
		c.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	capacities, databases := map[network.PortRef]uint64{}, map[openflow.DatapathID]string{}
	for _, s := range c.lab.Topology().Switches {
		sw := c.lab.Switch(s.Name)
		databases[openflow.DatapathID(sw.DPID())] = sw.Database()
		for port := uint32(1); port < 64; port++ {
			capacities[network.PortRef{Switch: openflow.DatapathID(sw.DPID()), Port: port}] = c.rate
		}
	}
	c.net, err = network.New(network.Config{
		Listeners: []net.Listener{listener}, Capacities: capacities, Log: log,
		DiscoveryInterval: discoveryInterval, DiscoveryTimeout: discoveryTimeout, StatsInterval: time.Second,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	owner, err := c.net.Owner(classes.OwnerName, network.OwnerOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.bus = event.NewBus(1, 1024)
	c.book = reserve.New(func(l reserve.Link) reserve.Use { return reserve.Use{Capacity: c.net.Capacity(l)} })
	c.startCritical(log)
	manager := ovsdb.NewManager(ovsdb.ManagerOptions{
		Switches: func() []uint64 {
			var up []uint64
			for _, d := range c.net.Datapaths() {
				up = append(up, uint64(d))
			}
			return up
		},
		Target: func(d uint64) (string, error) { return databases[openflow.DatapathID(d)], nil },
	})
	queues, err := manager.Owner(classes.DatabaseOwner)
	if err != nil {
		c.t.Fatal(err)
	}
	c.service = classes.New(classes.Options{
		Network: c.net, Rules: owner, Store: c.store, Log: log,
		Publish: func(kind string, attrs any) { c.bus.Publish("qos."+kind, attrs) },
		Book:    c.book, Critical: c.critical,
		Databases: queues,
		Quota:     0.05, Interval: 500 * time.Millisecond, Settle: 3 * time.Second, OnConnect: true,
	})
	c.net.Subscribe(c.service.NetworkChanged)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.net.Run(ctx) })      // ends with ctx
	wg.Go(func() { _ = manager.Run(ctx) })    // ends with ctx
	wg.Go(func() { _ = c.service.Run(ctx) })  // ends with ctx
	wg.Go(func() { _ = c.critical.Run(ctx) }) // ends with ctx
	wg.Go(func() { _ = c.held.Run(ctx) })     // ends with ctx
	c.stop = sync.OnceFunc(func() { cancel(); wg.Wait(); c.bus.Close() })
}

// startCritical starts the service that places critical flows, which shares the book.
func (c *classesLab) startCritical(log *slog.Logger) {
	c.t.Helper()
	owner, err := c.net.Owner(critical.Owner, network.OwnerOptions{OnRemoved: func(r network.Removed) { c.critical.Removed(r) }})
	if err != nil {
		c.t.Fatal(err)
	}
	c.held = newGuard(c.t, c.net, c.book)
	c.critical = critical.New(critical.Options{
		Network: c.net, Rules: owner, Store: c.store, Book: c.book, Guard: c.held, Log: log, Publish: unheard, Interval: 500 * time.Millisecond,
	})
	c.net.AddHandler(rule.ChainCritical, c.critical)
}

// discover waits until every link of the lab is known and measured.
func (c *classesLab) discover() {
	c.t.Helper()
	switches := map[string]bool{}
	for _, s := range c.lab.Topology().Switches {
		switches[s.Name] = true
	}
	inner := 0
	for _, l := range c.lab.Topology().Links {
		if switches[l.A.Node] && switches[l.B.Node] {
			inner += 2
		}
	}
	within(c.t, testTimeout, "links are discovered", func() error {
		links := c.net.Topology().Links
		if len(links) != inner {
			return fmt.Errorf("%d of %d", len(links), inner)
		}
		for _, l := range links {
			if l.Latency == 0 {
				return fmt.Errorf("the latency of the link from %v is not measured", l.From)
			}
		}
		return nil
	})
}

// within polls until f returns no error.
func within(t *testing.T, d time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(d)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

// add requests a class and expects it to be accepted.
func (c *classesLab) add(spec classes.ClassSpec) classes.Info {
	c.t.Helper()
	info, err := c.request(spec)
	if err != nil {
		c.t.Fatalf("class %s: %v", spec.Name, err)
	}
	return info
}

func (c *classesLab) request(spec classes.ClassSpec) (classes.Info, error) {
	class, faults := spec.Parse()
	if len(faults) > 0 {
		return classes.Info{}, fmt.Errorf("%+v", faults)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	return c.service.Add(ctx, class)
}

func (c *classesLab) delete(name string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := c.service.Declared.Remove(ctx, name, 0); err != nil {
		c.t.Fatalf("delete %s: %v", name, err)
	}
}

func (c *classesLab) addr(host string) netip.Addr { return c.lab.Host(host).Addr() }

// udp returns a class of the UDP packets to one port of a host.
func (c *classesLab) udp(name, from, to string, port, priority int) classes.ClassSpec {
	return classes.ClassSpec{Name: name, Priority: text(priority), Flows: []match.Flow{{
		IPv4Src: text(c.addr(from)), IPv4Dst: text(c.addr(to)), UDPDst: text(port),
	}}}
}

func text(v any) match.Text { return match.Text(fmt.Sprint(v)) }

// prints returns the queues and rules of the switches, in the database and in the kernel,
// without identifiers and counters, for comparisons.
func (c *classesLab) prints() string {
	c.t.Helper()
	var out strings.Builder
	for _, s := range c.lab.Topology().Switches {
		sw := c.lab.Switch(s.Name)
		for _, args := range [][]string{
			{"--columns=type,other_config,external_ids", "list", "QoS"},
			{"--columns=dscp,other_config,external_ids", "list", "Queue"},
		} {
			text, err := sw.Vsctl(context.Background(), args...)
			if err != nil {
				c.t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s %s\n%s\n", s.Name, args[2], sorted(text))
		}
		for _, args := range [][]string{{"qdisc", "show"}, {"filter", "show", "parent", "1:0"}} {
			fmt.Fprintf(&out, "%s tc %v\n%s\n", s.Name, args, sorted(c.tc(sw, args...)))
		}
		for _, l := range c.lab.Topology().Links {
			if port, err := sw.Port(l.Name); err == nil {
				fmt.Fprintf(&out, "%s port %d\n%s\n", s.Name, port, sorted(c.tc(sw, "class", "show", "dev", c.device(sw, port))))
			}
		}
	}
	return out.String()
}

func (c *classesLab) tc(sw *lab.LiveSwitch, args ...string) string {
	c.t.Helper()
	out, err := sw.Command(context.Background(), "tc", args...).CombinedOutput()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

// device returns the interface of a port.
func (c *classesLab) device(sw *lab.LiveSwitch, port int) string {
	c.t.Helper()
	name, err := sw.Vsctl(context.Background(), "--bare", "--columns=name", "find", "Interface", fmt.Sprintf("ofport=%d", port))
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(name)
}

// at returns the port by which packets leave a switch over a link.
func (c *classesLab) at(node, link string) topology.PortRef {
	c.t.Helper()
	port, err := c.lab.Switch(node).Port(link)
	if err != nil {
		c.t.Fatal(err)
	}
	return topology.PortRef{Switch: openflow.DatapathID(c.lab.Switch(node).DPID()), Port: uint32(port)}
}

// sorted sorts lines, so that the order of rows does not matter.
func sorted(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func countOf(text, part string) int { return strings.Count(text, part) }

// link returns a link's name, whichever end is named first.
func (c *classesLab) link(name string) string {
	c.t.Helper()
	a, b, _ := strings.Cut(name, "-")
	for _, l := range c.lab.Topology().Links {
		if l.Name == name || l.Name == b+"-"+a {
			return l.Name
		}
	}
	c.t.Fatalf("there is no link %s", name)
	return ""
}

// settled waits until every port of every switch has its token bucket, with the given
// number of classes in all, and a limited queue in each leaf.
func (c *classesLab) settled(classes int) {
	c.t.Helper()
	within(c.t, testTimeout, "every port has its bucket", func() error {
		for _, l := range c.lab.Topology().Links {
			for _, node := range []string{l.A.Node, l.B.Node} {
				if !strings.HasPrefix(node, "s") {
					continue
				}
				sw := c.lab.Switch(node)
				text := c.tc(sw, "qdisc", "show", "dev", c.device(sw, int(c.at(node, l.Name).Port)))
				if countOf(text, "htb 1:") != 1 || countOf(text, "pfifo") < 2+classes {
					return fmt.Errorf("%s, link %s: %s", node, l.Name, text)
				}
			}
		}
		return nil
	})
}

// same returns an error unless two prints are equal.
func same(before, now string) error {
	if before == now {
		return nil
	}
	a, b := strings.Split(before, "\n"), strings.Split(now, "\n")
	beyond := func(x, y []string) []string {
		return slices.DeleteFunc(slices.Clone(x), func(line string) bool { return slices.Contains(y, line) })
	}
	more, less := beyond(b, a), beyond(a, b)
	return fmt.Errorf("%d lines more: %q; %d less: %q", len(more), more[:min(len(more), 5)], len(less), less[:min(len(less), 5)])
}

// published returns the kinds of events so far.
func (c *classesLab) published() []string {
	c.t.Helper()
	sub := c.bus.Subscribe(0)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	var out []string
	for {
		e, err := sub.Next(ctx)
		if err != nil {
			return out
		}
		out = append(out, e.Kind)
	}
}
