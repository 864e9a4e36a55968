package cinema

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// TestMeters checks that a channel passes a meter where it enters, if the switch there supports
// meters. If not, the channel is installed without one, the switch is not asked again before it
// reconnects, and no trouble is reported.
func TestMeters(t *testing.T) {
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "a")
	metered := func(channel string) (rate uint32) {
		t.Helper()
		p := b.ledger.Program(channel)
		for _, r := range p.Rules {
			has := false
			for _, m := range p.Meters {
				if m.Switch == r.Switch && m.ID == r.Meter {
					rate, has = m.Bands[0].Rate, true
				}
			}
			if want := len(p.Meters) > 0 && r.Switch == 1; has != want {
				t.Errorf("the rule of %s at switch %v passes meter %d; meters %v", channel, r.Switch, r.Meter, p.Meters)
			}
		}
		return rate
	}
	if rate := metered("a"); rate != 2500 {
		t.Errorf("a channel of 2 Mbit/s is held to %d kbit/s", rate)
	}
	var refused atomic.Int32
	noMeters := func(p network.Program) error {
		if len(p.Meters) > 0 {
			if p.Meters[0].ID == tree.MeterNumber(2) {
				refused.Add(1) // the other channel is reconciled at the same time
			}
			return fmt.Errorf("switch 1: %w", network.ErrRefused)
		}
		return nil
	}
	b.ledger.refuse.Store(&noMeters)
	b.mustWant(b.east, 2, 6001, "b")
	b.mustWant(b.east, 3, 6002, "b")
	if rate := metered("b"); rate != 0 {
		t.Errorf("held to %d kbit/s where there are no meters", rate)
	}
	b.expect("b", 1, "10.0.0.2:6001", "10.0.0.2:6002")
	if n := refused.Load(); n != 1 {
		t.Errorf("the switch was asked %d times", n)
	}
	if why := b.trouble("b"); why != "" {
		t.Errorf("trouble %q", why)
	}
	b.ledger.refuse.Store(nil)
	b.service.NetworkChanged(network.Event{Kind: network.SwitchUp, Switch: 1})
	b.eventually("it is held to its rate by a switch that has meters now", func() bool { return metered("b") == 2500 })
	nothing := func(network.Program) error { return network.ErrRefused }
	b.ledger.refuse.Store(&nothing)
	if err := b.want(b.west, 4, 6000, "a"); err == nil {
		t.Error("what a switch refuses for another reason is no error")
	}
}
