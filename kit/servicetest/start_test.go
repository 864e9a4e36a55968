package servicetest_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const place = 490 // of the rules, in the stage select

// paths is a service each of whose items is a path from port 1 of switch 1 to port 1 of switch 2.
type paths struct {
	*kit.Reconciler[uint16]
	part  *kit.Part
	looks atomic.Int64
}

func (p *paths) build(n *network.Network, st store.Store) (func(context.Context) error, error) {
	owner, err := kit.NewOwner(n, "paths")
	if err != nil {
		return nil, err
	}
	p.part = owner.Part("items")
	p.Reconciler = kit.NewReconciler(kit.Options[uint16]{
		Kind:  kit.Kind[uint16]{Singular: "path", Plural: "paths", Prefix: "paths/", Event: "path", MaxItems: 8},
		Store: st, Log: slog.New(slog.DiscardHandler),
	}, p.part, func(_ context.Context, x kit.Item[uint16]) (out network.Program, err error) {
		p.looks.Add(1)
		path, ok := n.Topology().Path(network.PortRef{Switch: 1, Port: 1}, network.PortRef{Switch: 2, Port: 1}, network.MetricHops)
		if !ok {
			return out, network.ErrNoPath
		}
		out.Rules, err = kit.Along{
			Hops: path.Hops, Stage: network.StageSelect, Offset: place, Idle: time.Minute,
			Match: openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(x.Value)),
		}.Rules()
		return out, err
	})
	run := p.Reconciler
	return func(ctx context.Context) error { return run.Run(ctx, nil) }, nil
}

// TestStart checks that a service's rules are in the tables of fake switches, over a restart on the
// same store, and until their idle timeout. After that they stay away until the service requests
// them.
func TestStart(t *testing.T) {
	var now atomic.Int64
	now.Store(1000)
	p := &paths{}
	c := servicetest.Start(t, servicetest.Fabric{
		Switches: 2, Ports: 2, Links: [][2]network.PortRef{{{Switch: 1, Port: 2}, {Switch: 2, Port: 2}}},
		Clock: func() time.Time { return time.Unix(now.Load(), 0) },
	}, p.build)
	<-p.Loaded()
	entries := func(d openflow.DatapathID) (out []fake.Entry) {
		for _, e := range c.Switch(d).Table().Entries() {
			if e.Priority == network.StageSelect.Base()+place {
				out = append(out, e)
			}
		}
		return out
	}
	has := func(what string, first, second int) {
		t.Helper()
		if a, b := len(entries(1)), len(entries(2)); a != first || b != second {
			t.Errorf("%s: %d and %d rules, want %d and %d", what, a, b, first, second)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.Add(t.Context(), "web", 80))
	has("declared", 1, 1)
	before := entries(2)[0].Cookie
	c.Restart()
	<-p.Loaded()
	must(p.Reconcile(t.Context(), "web"))
	has("after a restart", 1, 1)
	if after := entries(2)[0].Cookie; after != before {
		t.Errorf("the rule has been written anew: cookie %#x, was %#x", after, before)
	}

	now.Add(60)
	must(c.Switch(1).Expire())
	eventually(t, "the end of the rule to be known", func() bool { return len(p.part.Rules("web")) == 1 })
	looks := p.looks.Load()
	eventually(t, "two looks by routine", func() bool { p.Wake(); return p.looks.Load() >= looks+2 })
	has("ended", 0, 1)
	must(p.Reconcile(t.Context(), "web"))
	has("asked for", 1, 1)
	must(p.Remove(t.Context(), "web", 0))
	has("removed", 0, 0)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}
