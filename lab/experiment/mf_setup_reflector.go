package experiment

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// reflectedLabel is the label of all answers while the reflector is the controller.
const reflectedLabel = 4000

// reflect measures what requests for a path that exists take if the controller only sends them on.
// It leaves the switches without rules.
func (g *setupRig) reflect(ctx context.Context) (err error) {
	last := g.lab.Switch("s2")
	out, err := last.Port("b-s2")
	if err != nil {
		return err
	}
	g.controller, err = testbed.StartDaemon(ctx, g.lab.Control(), filepath.Join(g.env.Dir, "reflector.log"), g.env.Lab,
		"reflector", "--listen", g.lab.ControllerAddr().String(), "--out", fmt.Sprintf("%x:%d", last.DPID(), out))
	if err != nil {
		return err
	}
	defer g.controller.Stop()
	g.reflected.Store(true)
	defer g.reflected.Store(false)
	if err := g.reflectedRules(ctx); err != nil {
		return err
	}
	// The first requests may come before the switches have connected.
	err = testbed.Poll(ctx, "an answer", func() error {
		within, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		return g.again(within, 0)
	})
	if err != nil {
		return err
	}
	if _, err := g.bursts(ctx, "reflector"); err != nil {
		return err
	}
	if _, err := g.measure(ctx, "path asked for again, by the reflector", g.again); err != nil {
		return err
	}
	if _, err := g.measure(ctx, "frame by a label, switches with no other rules", g.byLabel); err != nil {
		return err
	}
	for _, name := range []string{"s1", "s2"} {
		if _, err := g.lab.Switch(name).Ofctl(ctx, "del-flows"); err != nil {
			return err
		}
	}
	return nil
}

// reflectedRules installs the rules for requests, and for frames with reflectedLabel.
func (g *setupRig) reflectedRules(ctx context.Context) error {
	rule := func(at, match, actions string) error {
		_, err := g.lab.Switch(at).Ofctl(ctx, "add-flow", fmt.Sprintf("priority=1,dl_type=%#x,%s,actions=%s", frame.EtherType, match, actions))
		return err
	}
	if err := rule("s1", "dl_dst="+everybody.String(), "CONTROLLER:65535"); err != nil {
		return err
	}
	from, err := g.lab.Switch("s1").Port("s1-s2")
	if err != nil {
		return err
	}
	between, err := g.lab.Switch("s2").Port("s1-s2")
	if err != nil {
		return err
	}
	last, err := g.lab.Switch("s2").Port("b-s2")
	if err != nil {
		return err
	}
	forth := fmt.Sprintf("dl_vlan=%d,dl_dst=%v", reflectedLabel, g.there)
	if err := rule("s1", forth, fmt.Sprint("output:", from)); err != nil {
		return err
	}
	if err := rule("s2", forth, fmt.Sprint("strip_vlan,output:", last)); err != nil {
		return err
	}
	for i, s := range g.asks {
		port, err := g.lab.Switch("s1").Port(fmt.Sprintf("a%d-s1", i))
		if err != nil {
			return err
		}
		match := fmt.Sprintf("dl_vlan=%d,dl_dst=%v", reflectedLabel, s.MAC)
		if err := rule("s2", match, fmt.Sprint("output:", between)); err != nil {
			return err
		}
		if err := rule("s1", match, fmt.Sprint("strip_vlan,output:", port)); err != nil {
			return err
		}
	}
	return nil
}
