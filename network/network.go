package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/openflow"
)

// Network is the controller's core. Handlers and owners are added before Run.
type Network struct {
	cfg       Config
	running   atomic.Bool
	listeners []net.Listener

	// Sessions with switches.
	admission admission
	switches  *registry
	quota     *quota
	readers   readerSemaphore

	// Rules.
	ledger *ledger.Ledger
	owners ownerRegistry
	core   *Owner
	// comparisons holds a token for each switch that is being compared with the ledger.
	comparisons chan struct{}

	// What is known about the network, and the parts that find it out.
	links      *discovery.Discovery
	linkProber linkProber
	hosts      *hosts.Table
	anchors    anchors
	virtuals   virtuals
	hostProber *hostProber
	resolver   resolver
	tentative  tentativePackets
	rechecks   rechecks
	traffic    Traffic
	doctor     Doctor
	snapshots  snapshots

	// The parts that act when the network changes.
	dispatcher dispatcher
	publisher  *publisher
	repairs    repairs
	forwarding *forwarding
	tree       broadcastTree
	proactive  *proactive

	handlers []chainEntry
	mu       sync.Mutex
	chain    []Handler // in calling order; complete once Run has begun
}

type chainEntry struct {
	priority int
	handler  Handler
}

// New returns a network whose listeners are open. Run or Close closes them.
func New(c Config) (*Network, error) {
	n, err := assemble(c.withDefaults())
	if err != nil {
		return nil, err
	}
	n.listeners = slices.Clone(c.Listeners)
	for _, addr := range c.Listen {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			n.Close()
			return nil, fmt.Errorf("listening for switches on %s: %w", addr, err)
		}
		n.listeners = append(n.listeners, l)
	}
	if err := n.traffic.sflow.listen(&n.cfg); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Close closes the listeners of a network that was never run.
func (n *Network) Close() {
	for _, l := range n.listeners {
		_ = l.Close()
	}
	if n.traffic.sflow.conn != nil {
		_ = n.traffic.sflow.conn.Close()
	}
}

// Addr returns the addresses that the network listens on, in the order of the configuration.
func (n *Network) Addr() []net.Addr {
	out := make([]net.Addr, len(n.listeners))
	for i, l := range n.listeners {
		out[i] = l.Addr()
	}
	return out
}

// AddHandler adds a handler to the packet-in chain. Handlers with lower priorities are called
// first. AddHandler must not be called after Run.
func (n *Network) AddHandler(priority int, h Handler) {
	if n.running.Load() {
		panic("network: AddHandler after Run")
	}
	n.handlers = append(n.handlers, chainEntry{priority, h})
}

// Handlers returns the names of the chain's handlers in calling order.
func (n *Network) Handlers() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := make([]string, len(n.chain))
	for i, h := range n.chain {
		names[i] = h.Name()
	}
	return names
}

// Run accepts switches until ctx ends. It returns after all its goroutines have ended.
func (n *Network) Run(ctx context.Context) error {
	if !n.running.CompareAndSwap(false, true) {
		return errors.New("network: Run was called before")
	}
	slices.SortStableFunc(n.handlers, func(a, b chainEntry) int { return a.priority - b.priority })
	n.mu.Lock()
	for _, c := range n.handlers {
		n.chain = append(n.chain, c.handler)
	}
	n.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, n.Close)()
	var wg sync.WaitGroup
	errs := make(chan error, len(n.listeners)+1)
	part := func(run func() error) {
		wg.Go(func() {
			if err := run(); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	for _, l := range n.listeners {
		part(func() error {
			return n.admission.accept(ctx, l, func(conn net.Conn, at *pendingConn) { wg.Go(func() { newSwitch(n, conn).serve(ctx, at) }) })
		})
	}
	if n.traffic.sflow.conn != nil {
		part(func() error { return n.traffic.sflow.receive(ctx) })
	}
	wg.Go(func() { n.maintain(ctx) })
	wg.Wait()
	n.Close()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// Switch returns the session of a switch that is up.
func (n *Network) Switch(d openflow.DatapathID) (*Switch, bool) { return n.switches.get(d) }

// Switches returns the switches that are up, ordered by datapath identifier.
func (n *Network) Switches() []*Switch { return n.switches.list() }

// Topology returns the current snapshot of switches and links.
func (n *Network) Topology() *Topology { return n.snapshots.topo.Load() }

// Loops returns the loops through foreign bridges, each with the port that is blocked because of it.
func (n *Network) Loops() []discovery.Loop { return n.links.Loops() }

// Subscribe registers f to be called with every event, on the goroutine where the event occurs. f
// must not block.
func (n *Network) Subscribe(f func(Event)) { n.publisher.subscribe(f) }

// maintain runs the network's background work until ctx ends: probes, repairs, and everything that
// expires.
func (n *Network) maintain(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { n.forwarding.runRepairs(ctx) })
	wg.Go(func() { n.tree.run(ctx) })
	wg.Go(func() { n.proactive.run(ctx) })
	wg.Go(func() { n.owners.runLeases(ctx) })
	wg.Go(func() { n.tentative.run(ctx) })
	wg.Go(func() { n.rechecks.run(ctx) })
	wg.Go(func() {
		r := hostPersister{hosts: n.hosts, store: n.cfg.Remember, log: n.cfg.Log, limiter: switchLimiter{perSwitch: persistRatePerSwitch, overall: persistRateTotal}}
		r.run(ctx)
	})
	wg.Go(func() { n.publisher.run(ctx) })
	wg.Go(func() { n.doctor.run(ctx) })
	probe := time.NewTimer(0)
	defer probe.Stop()
	held := time.NewTicker(holdTick)
	defer held.Stop()
	record := time.NewTimer(n.traffic.untilRecord())
	defer record.Stop()
	age := time.NewTicker(time.Minute)
	defer age.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.linkProber.due:
			probe.Reset(time.Until(n.linkProber.probe(time.Now())))
		case <-probe.C:
			probe.Reset(time.Until(n.linkProber.probe(time.Now())))
		case now := <-held.C:
			n.switches.expireHeld(now)
		case now := <-record.C:
			n.traffic.record(now)
			record.Reset(n.traffic.untilRecord())
		case now := <-age.C:
			n.dispatcher.hostChanges(n.hosts.Expire(now))
		}
	}
}

// holdTick is the interval at which expired held packets are looked for.
const holdTick = 20 * time.Millisecond
