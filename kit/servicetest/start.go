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

// Fabric describes fake switches and the links between them.
type Fabric struct {
	// Switches is the number of switches, whose datapath identifiers start at 1. Ports is the
	// number of ports of each switch.
	Switches, Ports int
	// Links join ports, in both directions.
	Links [][2]network.PortRef
	// OnOutput, if not nil, is called for each frame that leaves by a port without a link,
	// including discovery probes. It must not block.
	OnOutput func(at network.PortRef, frame []byte)
	// Clock returns the time for the timeouts of rules. If it is nil, time.Now is used.
	Clock func() time.Time
}

// Build makes a service that uses a network and a store, and returns the function that runs it
// until its context ends. It adds handlers and owners of rules to the network before it returns.
type Build func(*network.Network, store.Store) (run func(context.Context) error, err error)

// Controller is a service and its network of fake switches, which are connected over the loopback
// interface. Use it from one goroutine.
type Controller struct {
	// Network is the network that the service uses. A restart replaces it.
	Network *network.Network
	// Store holds the service's state, also over a restart.
	Store store.Store

	t        testing.TB
	fabric   Fabric
	build    Build
	switches map[openflow.DatapathID]*fake.Switch
	starts   uint16
	stop     func()
}

// Start runs a service on fake switches until the test ends. It returns when all switches are
// connected, all links are known, and all other ports are known to be edge ports.
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

// Restart stops the service and its network, and starts both again on the same store. The switches
// keep their tables.
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

// await waits until the switches are connected, the links are known, and the other ports are edge
// ports. It takes a while until the network knows that a port has no link.
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

// edges returns the number of edge ports.
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

// background runs f until end is called, and reports its error to the test.
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
