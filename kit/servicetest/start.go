package servicetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

// startTimeout bounds the wait for switches and links.
const startTimeout = time.Minute

// Fabric describes fake switches and how they are joined.
type Fabric struct {
	// Switches is how many there are, with datapath identifiers from 1 and up, and Ports how
	// many ports each of them has.
	Switches, Ports int
	// Links join ports, in both directions.
	Links [][2]network.PortRef
	// OnOutput, if not nil, is told of each frame that leaves by a port without a link, probes of
	// links among them. It must not block.
	OnOutput func(at network.PortRef, frame []byte)
	// Clock gives the time for the timeouts of rules; nil is the time of day.
	Clock func() time.Time
}

// Build makes a service that uses a network and a store, and returns what runs it until a context
// ends. Handlers and owners of rules are added to the network before it returns.
type Build func(*network.Network, store.Store) (run func(context.Context) error, err error)

// Controller is a service, and the network that it works on: fake switches that are connected
// to it over the loopback interface. Use it from one goroutine.
type Controller struct {
	// Network is the one that the service uses; another after a restart.
	Network *network.Network
	// Store is what the service keeps its state in, also over a restart.
	Store store.Store

	t        testing.TB
	fabric   Fabric
	build    Build
	switches map[openflow.DatapathID]*fake.Switch
	starts   uint16
	stop     func()
}

// Start runs a service on fake switches until the test ends. It returns when all switches are
// connected, all links known, and hosts may be behind all other ports.
func Start(t testing.TB, f Fabric, build Build) *Controller {
	t.Helper()
	c := &Controller{Store: memstore.New(), t: t, fabric: f, build: build, switches: map[openflow.DatapathID]*fake.Switch{}, stop: func() {}}
	links := map[network.PortRef]network.PortRef{}
	for _, l := range f.Links {
		links[l[0]], links[l[1]] = l[1], l[0]
	}
	for i := range f.Switches {
		d := openflow.DatapathID(i + 1)
		c.switches[d] = fake.NewSwitch(fake.Options{DPID: d, Ports: f.Ports, Clock: f.Clock, OnOutput: func(port uint32, frame []byte) {
			at := network.PortRef{Switch: d, Port: port}
			if to, joined := links[at]; joined {
				_, _ = c.switches[to.Switch].Receive(to.Port, frame) // fails while it is not connected
			} else if f.OnOutput != nil {
				f.OnOutput(at, frame)
			}
		}})
	}
	t.Cleanup(func() { c.stop() })
	c.start()
	return c
}

// Switch returns the fake switch with a datapath identifier.
func (c *Controller) Switch(d openflow.DatapathID) *fake.Switch { return c.switches[d] }

// Restart ends the service and its network, and starts both again on the same store. The switches
// keep what is in their tables.
func (c *Controller) Restart() {
	c.t.Helper()
	c.stop()
	c.stop = func() {}
	c.start()
}

func (c *Controller) start() {
	c.t.Helper()
	c.starts++
	n, err := network.New(network.Config{
		Listen: []string{"127.0.0.1:0"}, Generation: c.starts, DiscoveryInterval: 100 * time.Millisecond, DiscoverySettle: 50 * time.Millisecond,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	run, err := c.build(n, c.Store)
	if err != nil {
		n.Close()
		c.t.Fatal(err)
	}
	c.Network = n
	endService := c.background(run)
	endNetwork := c.background(n.Run)
	endSwitches := make([]func(), 0, len(c.switches))
	for _, sw := range c.switches {
		endSwitches = append(endSwitches, c.background(func(ctx context.Context) error { return sw.Dial(ctx, n.Addr()[0]) }))
	}
	c.stop = func() {
		endService()
		for _, end := range endSwitches {
			end()
		}
		endNetwork()
	}
	c.await()
}

// await waits until the switches are connected, the links known, and hosts may be behind the other
// ports: it takes a while to see that no link is there.
func (c *Controller) await() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		top := c.Network.Topology()
		edges := c.edges()
		ports := c.fabric.Switches*c.fabric.Ports - 2*len(c.fabric.Links)
		if len(top.Switches) == c.fabric.Switches && len(top.Links) == 2*len(c.fabric.Links) && edges == ports {
			return
		}
		if tasks.Sleep(ctx, 5*time.Millisecond) != nil {
			c.t.Fatalf("%d of %d switches are connected, %d of %d directions of links known, and %d of %d ports for hosts",
				len(top.Switches), c.fabric.Switches, len(top.Links), 2*len(c.fabric.Links), edges, ports)
		}
	}
}

// edges counts the ports behind which hosts may be.
func (c *Controller) edges() (n int) {
	for d := range c.switches {
		for port := range uint32(c.fabric.Ports) {
			if c.Network.IsEdge(network.PortRef{Switch: d, Port: port + 1}) {
				n++
			}
		}
	}
	return n
}

// background runs f until end is called, and reports its error.
func (c *Controller) background(f func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil {
			c.t.Error(err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
