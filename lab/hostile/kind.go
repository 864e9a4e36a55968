package hostile

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

// Kind is one kind of hostile switch.
type Kind struct {
	Name string
	Does string // continues "a switch that"
	run  func(context.Context, Target)
}

// Target describes the controller and the hosts that a hostile switch attacks.
type Target struct {
	// Dial connects to the controller's port for switches.
	Dial func(context.Context) (net.Conn, error)
	// DPID is the datapath identifier that the switch claims.
	DPID openflow.DatapathID
	// Victims lists hosts at other switches, whose addresses the switch may claim.
	Victims []Host
}

// Host is an end host.
type Host struct {
	MAC  openflow.MAC
	Addr netip.Addr // IPv4
}

// Run runs the hostile switch until ctx ends, and returns when all its connections are closed. A
// switch that is refused or cut off connects again.
func (k Kind) Run(ctx context.Context, t Target) { k.run(ctx, t) }

// reconnectDelay is the time after which a switch that was cut off connects again.
const reconnectDelay = 100 * time.Millisecond

// behaviour is the behaviour of a switch that completes the handshake.
type behaviour struct {
	options fake.Options
	// attack, if set, is called once the switch has received rules. The connection is closed when it
	// returns.
	attack func(context.Context, *fake.Switch, Target)
	pause  time.Duration // until the switch connects again
}

// reconnecting returns a function that connects new switches, one after another, until ctx ends.
// Each has the behaviour that make returns.
func reconnecting(make func(context.Context) behaviour) func(context.Context, Target) {
	return func(ctx context.Context, t Target) {
		for ctx.Err() == nil {
			c := make(ctx)
			c.options.DPID = t.DPID
			conn, err := t.Dial(ctx)
			if err != nil {
				_ = tasks.Sleep(ctx, reconnectDelay) // The controller may refuse the connection.
				continue
			}
			c.session(ctx, conn, t)
			_ = tasks.Sleep(ctx, c.pause)
		}
	}
}

// session serves one connection until it is closed.
func (c behaviour) session(ctx context.Context, conn net.Conn, t Target) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := fake.NewSwitch(c.options)
	attacked := make(chan struct{})
	go func() {
		defer close(attacked)
		if c.attack == nil || !hasRules(ctx, s) {
			return
		}
		c.attack(ctx, s, t)
		cancel()
	}()
	_ = s.Run(ctx, conn) // Any end of the connection is intended.
	cancel()
	<-attacked
}

// hasRules waits for the controller's first rule, and reports whether one has arrived.
func hasRules(ctx context.Context, s *fake.Switch) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for s.FlowMods() == 0 {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
