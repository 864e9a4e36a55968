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

// Kind is one way to do harm.
type Kind struct {
	Name string
	Does string // after "a switch that"
	run  func(context.Context, Target)
}

// Target is whom a hostile switch harms.
type Target struct {
	// Dial connects to the controller's port for switches.
	Dial func(context.Context) (net.Conn, error)
	// DPID is what the switch calls itself.
	DPID openflow.DatapathID
	// Victims are hosts elsewhere, whose addresses it may claim.
	Victims []Host
}

// Host is an end host.
type Host struct {
	MAC  openflow.MAC
	Addr netip.Addr // IPv4
}

// Run does harm until ctx ends, and returns when all its connections are closed. A
// switch that is refused or cut off comes again.
func (k Kind) Run(ctx context.Context, t Target) { k.run(ctx, t) }

// again is when a switch that was cut off comes again.
const again = 100 * time.Millisecond

// conduct is how a switch behaves that connects as switches do.
type conduct struct {
	options fake.Options
	// worst, if set, is what it does as soon as it has rules of the controller; the
	// connection is closed when it returns.
	worst func(context.Context, *fake.Switch, Target)
	pause time.Duration // until it comes again
}

// as has a new switch of a conduct connect, again and again.
func as(make func(context.Context) conduct) func(context.Context, Target) {
	return func(ctx context.Context, t Target) {
		for ctx.Err() == nil {
			c := make(ctx)
			c.options.DPID = t.DPID
			conn, err := t.Dial(ctx)
			if err != nil {
				_ = tasks.Sleep(ctx, again) // refused, as it may be
				continue
			}
			c.session(ctx, conn, t)
			_ = tasks.Sleep(ctx, c.pause)
		}
	}
}

// session is one connection from its first to its last byte.
func (c conduct) session(ctx context.Context, conn net.Conn, t Target) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := fake.NewSwitch(c.options)
	worst := make(chan struct{})
	go func() {
		defer close(worst)
		if c.worst == nil || !hasRules(ctx, s) {
			return
		}
		c.worst(ctx, s, t)
		cancel()
	}()
	_ = s.Run(ctx, conn) // however it ends, it was meant to be
	cancel()
	<-worst
}

// hasRules waits for the controller's first rule. It is false if none comes.
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
