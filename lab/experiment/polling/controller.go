package polling

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

const (
	owner = "polling"
	// idle is how long a connection must be silent until its rule expires.
	idle = 5 * time.Second
	// synTimeout bounds the time that a SYN waits for its rule.
	synTimeout = time.Second
	// wholePacket makes a switch send whole packets to the controller.
	wholePacket = 0xffff
)

// Options holds the options of a Controller.
type Options struct {
	// Listeners accept switches. The controller closes them.
	Listeners []net.Listener
	// Capacities holds the capacities of links in bits per second, by the ports from which the
	// links lead.
	Capacities map[network.PortRef]uint64
	// Interval is how often counters are read: every five seconds in the publication.
	Interval time.Duration
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// Controller routes connections. Its methods may be called concurrently.
type Controller struct {
	Options
	net   *network.Network
	rules *network.Owner
	tasks *tasks.Group

	mu    sync.Mutex
	flows map[string]*flow
}

// New returns a controller that does nothing until Run.
func New(o Options) (*Controller, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	n, err := network.New(network.Config{
		Listeners: o.Listeners, Capacities: o.Capacities, Log: o.Log, Proactive: true, StatsInterval: o.Interval,
		DiscoveryInterval: 500 * time.Millisecond, DiscoveryTimeout: 4 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("polling controller: %w", err)
	}
	c := &Controller{Options: o, net: n, tasks: tasks.New(), flows: map[string]*flow{}}
	if c.rules, err = n.Owner(owner, network.OwnerOptions{OnRemoved: c.removed}); err != nil {
		return nil, fmt.Errorf("polling controller: %w", err)
	}
	n.AddHandler(rule.ChainSubflow, c)
	return c, nil
}

// Run runs the controller until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	defer c.tasks.Stop()
	c.rules.Ready()
	return c.net.Run(ctx)
}

// Network returns the core on which the controller is built.
func (c *Controller) Network() *network.Network { return c.net }

// Begin makes switches send connections that enter by ports of known hosts to the controller. From
// then on Run reads their counters.
func (c *Controller) Begin(ctx context.Context) error {
	for _, h := range c.net.Hosts() {
		var p network.Program
		for _, of := range []uint16{packet.TypeIPv4, packet.TypeIPv6} {
			p.Rules = append(p.Rules, network.Rule{
				Switch: h.At.Switch, Stage: network.StageRoute, Offset: rule.RouteSubflowAsk,
				Match:   openflow.MustMatch(openflow.InPort(h.At.Port), openflow.EthType(of), openflow.IPProto(packet.ProtoTCP), openflow.TCPFlags(packet.SYN, packet.SYN|packet.ACK)),
				Actions: []openflow.Action{openflow.OutputController(wholePacket)},
			})
		}
		if err := c.rules.Apply(ctx, "ask/"+h.At.String(), p, network.ApplyOptions{}); err != nil {
			return fmt.Errorf("polling controller: %w", err)
		}
	}
	c.tasks.Start(func(ctx context.Context) {
		for tasks.Sleep(ctx, c.Interval) == nil {
			c.read(ctx)
		}
	})
	return nil
}

// Messages returns the messages that have been exchanged with all connected switches.
func (c *Controller) Messages() (sent, received network.Messages) {
	for _, s := range c.net.Switches() {
		st := s.Stats()
		for t := range sent {
			sent[t] += st.Sent[t]
			received[t] += st.Received[t]
		}
	}
	return sent, received
}

// Name implements network.Handler.
func (c *Controller) Name() string { return owner }

// HandlePacketIn handles the SYNs of connections that enter. It runs on the switch's goroutine.
func (c *Controller) HandlePacketIn(p *network.PacketIn) network.Verdict {
	h, at := &p.Headers, network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}
	if !h.IsIP() || !h.IsSYN() || !c.net.IsEdge(at) {
		return network.Continue
	}
	header, ok := match.HeaderOf(h)
	to, known := c.net.HostByMAC(header.EthDst, header.VLAN)
	if !ok || !known || to.At.IsZero() || to.At == at {
		return network.Continue
	}
	held, err := p.Hold(synTimeout)
	if err != nil {
		return network.Continue
	}
	f := newFlow(header, at, to.At)
	c.mu.Lock()
	c.flows[f.key] = f // a retransmitted SYN replaces it
	c.mu.Unlock()
	c.tasks.Start(func(ctx context.Context) { c.enter(ctx, f, held) })
	return network.Stop
}

// removed handles the removal of a connection's rule. It runs on the switch's goroutine.
func (c *Controller) removed(r network.Removed) {
	c.mu.Lock()
	delete(c.flows, r.Name)
	c.mu.Unlock()
	c.tasks.Start(func(ctx context.Context) {
		if err := c.rules.Remove(ctx, r.Name); err != nil {
			c.Log.Warn("removing a connection", "connection", r.Name, "error", err)
		}
	})
}
