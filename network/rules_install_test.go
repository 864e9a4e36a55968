package network_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

func TestApplySendsOnlyTheDifference(t *testing.T) {
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 4)
	base := s.FlowMods()
	steps := []struct {
		name string
		p    network.Program
		sent int
		want map[uint16]uint32
	}{
		{"two new rules", networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 2)), 2, map[uint16]uint32{80: 1, 81: 2}},
		{"nothing new", networktest.Program(networktest.TCPTo(1, 81, 2), networktest.TCPTo(1, 80, 1)), 0, map[uint16]uint32{80: 1, 81: 2}},
		{"one changed", networktest.Program(networktest.TCPTo(1, 80, 3), networktest.TCPTo(1, 81, 2)), 1, map[uint16]uint32{80: 3, 81: 2}},
		{"one replaced by another", networktest.Program(networktest.TCPTo(1, 82, 3), networktest.TCPTo(1, 81, 2)), 2, map[uint16]uint32{82: 3, 81: 2}},
		{"none left", networktest.Program(), 2, map[uint16]uint32{}},
	}
	for _, st := range steps {
		networktest.Apply(t, o, "k", st.p, network.ApplyOptions{})
		networktest.WantRules(t, s, st.want)
		if sent := s.FlowMods() - base; sent != st.sent {
			t.Errorf("%s: %d flow-mods were sent, want %d", st.name, sent, st.sent)
		}
		base = s.FlowMods()
	}
	if keys := o.Keys(); len(keys) != 0 {
		t.Errorf("keys are left: %v", keys)
	}
}

func TestRefusedChangeRestoresWhatWas(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts network.ApplyOptions
	}{
		{"plain", network.ApplyOptions{}},
		{"ordered", network.ApplyOptions{Ordered: true}},
		{"atomic", network.ApplyOptions{Atomic: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var o *network.Owner
			n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
			one := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
			two := fake.NewSwitch(fake.Options{DPID: 2, Ports: 4})
			networktest.Connect(t, n, one, 1)
			networktest.Connect(t, n, two, 2)
			networktest.Apply(t, o, "k", networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(2, 80, 1)), tc.opts)
			two.Table().SetLimit(len(two.Table().Entries()))
			err := o.Apply(t.Context(), "k", networktest.Program(networktest.TCPTo(1, 80, 2), networktest.TCPTo(1, 81, 2), networktest.TCPTo(2, 80, 2), networktest.TCPTo(2, 81, 2)), tc.opts)
			var re *network.RuleError
			if !errors.Is(err, network.ErrRefused) || !errors.As(err, &re) {
				t.Fatalf("error is %v, want one that wraps ErrRefused", err)
			}
			if re.Switch != 2 || re.Reply == nil || re.Reply.Code != openflow.FlowModTableFull {
				t.Errorf("error does not name switch 2 and a full table: %v", err)
			}
			if !tc.opts.Atomic && (re.Rule == nil || re.Rule.Match != networktest.TCPTo(2, 81, 2).Match) {
				t.Errorf("error does not name the refused rule: %v", err)
			}
			networktest.WantRules(t, one, map[uint16]uint32{80: 1})
			networktest.WantRules(t, two, map[uint16]uint32{80: 1})
			if got := o.Rules("k"); len(got) != 2 {
				t.Errorf("the ledger holds %d rules, want the 2 from before", len(got))
			}
		})
	}
}

func TestApplyRefusesWhatCannotBe(t *testing.T) {
	var o, other *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) {
		o, other = networktest.Owner(t, n, "svc", network.OwnerOptions{}), networktest.Owner(t, n, "other", network.OwnerOptions{})
	})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2})
	networktest.Connect(t, n, s, 1)
	networktest.Apply(t, other, "theirs", networktest.Program(networktest.TCPTo(1, 99, 1)), network.ApplyOptions{})
	bad := networktest.TCPTo(1, 80, 1)
	bad.Offset = 10000
	noStage := networktest.TCPTo(1, 80, 1)
	noStage.Stage = 0
	back := networktest.TCPTo(1, 80, 1)
	back.Stage, back.Goto = network.StageRoute, rule.TableService
	long := networktest.TCPTo(1, 80, 1)
	long.Idle = 100 * time.Hour
	for name, tc := range map[string]struct {
		p    network.Program
		want error
	}{
		"a switch that is not there": {networktest.Program(networktest.TCPTo(7, 80, 1)), network.ErrSwitchDown},
		"another owner's place":      {networktest.Program(networktest.TCPTo(1, 99, 2)), network.ErrConflict},
		"the same rule twice":        {networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 80, 2)), network.ErrInvalid},
		"an offset beyond the stage": {networktest.Program(bad), network.ErrInvalid},
		"no stage":                   {networktest.Program(noStage), network.ErrInvalid},
		"going to an earlier table":  {networktest.Program(back), network.ErrInvalid},
		"a timeout too long":         {networktest.Program(long), network.ErrInvalid},
	} {
		before := s.FlowMods()
		if err := o.Apply(t.Context(), "k", tc.p, network.ApplyOptions{}); !errors.Is(err, tc.want) {
			t.Errorf("%s: error is %v, want %v", name, err, tc.want)
		}
		if s.FlowMods() != before {
			t.Errorf("%s: something was sent", name)
		}
		if len(o.Keys()) != 0 {
			t.Errorf("%s: something is left in the ledger", name)
		}
	}
}

func TestReconnectSendsOnlyWhatIsMissing(t *testing.T) {
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	o.Ready()
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	cut := networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 4)
	networktest.Apply(t, o, "a", networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 1)), network.ApplyOptions{})
	reconnect := func(what string, sent int) {
		t.Helper()
		cut()
		networktest.Down(t, n, 1)
		before := s.FlowMods()
		cut = networktest.Connect(t, n, s, 1)
		networktest.Edges(t, n, 1, 4)
		if got := s.FlowMods() - before; got != sent {
			t.Errorf("%s: %d flow-mods were sent, want %d", what, got, sent)
		}
		networktest.WantRules(t, s, map[uint16]uint32{80: 1, 81: 1})
	}
	reconnect("nothing changed", 0)
	remove(t, s, 80)
	reconnect("one rule lost", 1)
	orphan := openflow.NewFlowMod(openflow.FlowAdd, 0, network.StageRewrite.Base(), networktest.TCPTo(1, 90, 1).Match, openflow.ApplyActions(openflow.Output(1)))
	orphan.Cookie = uint64(o.Rules("a")[0].Cookie)
	if _, e := s.Table().Flow(orphan); e != nil {
		t.Fatal(e)
	}
	reconnect("an orphan with our cookie", 1)
}

// remove deletes a service's rule without the controller's knowledge.
func remove(t *testing.T, s *fake.Switch, port uint16) {
	t.Helper()
	m := openflow.NewFlowMod(openflow.FlowDeleteStrict, 0, network.StageRewrite.Base(), networktest.TCPTo(1, port, 1).Match)
	if gone, e := s.Table().Flow(m); e != nil || len(gone) != 1 {
		t.Fatalf("deleted %d rules: %v", len(gone), e)
	}
}

// TestRestartKeepsRulesThatAreDeclaredAgain checks that rules which a restarted controller finds
// on the switch are not touched if they are declared again, and that the others stay until the
// owner is ready.
func TestRestartKeepsRulesThatAreDeclaredAgain(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	var o *network.Owner
	register := func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) }
	n, stop := networktest.Start(t, network.Config{Generation: 1}, register)
	cut := networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 4)
	networktest.Apply(t, o, "a", networktest.Program(networktest.TCPTo(1, 80, 1)), network.ApplyOptions{})
	networktest.Apply(t, o, "b", networktest.Program(networktest.TCPTo(1, 81, 2)), network.ApplyOptions{})
	networktest.Apply(t, o, "c", networktest.Program(networktest.TCPTo(1, 82, 3)), network.ApplyOptions{})
	stop()
	cut()

	n, _ = networktest.Start(t, network.Config{Generation: 2}, register)
	before := s.FlowMods()
	networktest.Apply(t, o, "a", networktest.Program(networktest.TCPTo(1, 80, 1)), network.ApplyOptions{AllowDown: true}) // before the switch has connected
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 4)
	networktest.Apply(t, o, "b", networktest.Program(networktest.TCPTo(1, 81, 2)), network.ApplyOptions{}) // and afterwards
	networktest.WantRules(t, s, map[uint16]uint32{80: 1, 81: 2, 82: 3})
	if sent := s.FlowMods() - before; sent != 0 {
		t.Errorf("%d flow-mods were sent, want none", sent)
	}
	if r := o.Rules("b"); len(r) != 1 || r[0].Cookie.Generation() != 1 || !r[0].Confirmed {
		t.Errorf("rule b is held as %+v, want the one of generation 1, confirmed", r)
	}
	o.Ready()
	networktest.Eventually(t, "the rule nobody declared to be gone", func() bool { return len(networktest.ServiceRules(s)) == 2 })
	networktest.WantRules(t, s, map[uint16]uint32{80: 1, 81: 2})
	if sent := s.FlowMods() - before; sent != 1 {
		t.Errorf("%d flow-mods were sent, want one deletion", sent)
	}
	if err := o.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	networktest.WantRules(t, s, map[uint16]uint32{81: 2})
}

func TestAdoptTakesInWhatIsFound(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	var o *network.Owner
	register := func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{Adopt: true}) }
	n, stop := networktest.Start(t, network.Config{}, register)
	cut := networktest.Connect(t, n, s, 1)
	networktest.Apply(t, o, "a", networktest.Program(networktest.TCPTo(1, 80, 1)), network.ApplyOptions{})
	stop()
	cut()
	n, _ = networktest.Start(t, network.Config{}, register)
	o.Ready()
	networktest.Connect(t, n, s, 1)
	if got := o.Rules("adopted"); len(got) != 1 {
		t.Fatalf("adopted %v, want one rule", got)
	}
	networktest.WantRules(t, s, map[uint16]uint32{80: 1})
	if err := o.Remove(t.Context(), "adopted"); err != nil {
		t.Fatal(err)
	}
	networktest.WantRules(t, s, map[uint16]uint32{})
}

func TestRemovedRulesReachTheirOwner(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	removed := make(chan network.Removed, 4)
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) {
		o = networktest.Owner(t, n, "svc", network.OwnerOptions{OnRemoved: func(r network.Removed) { removed <- r }})
	})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, Clock: clock})
	networktest.Connect(t, n, s, 1)
	r := networktest.TCPTo(1, 80, 1)
	r.Idle, r.NotifyRemoved = 1500*time.Millisecond, true
	networktest.Apply(t, o, "k", networktest.Program(r), network.ApplyOptions{})
	now = now.Add(1900 * time.Millisecond)
	if err := s.Expire(); err != nil {
		t.Fatal(err)
	}
	networktest.WantRules(t, s, map[uint16]uint32{80: 1}) // timeouts are rounded up
	now = now.Add(time.Second)
	if err := s.Expire(); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-removed:
		if got.Name != "k" || got.Match != r.Match || got.Reason != openflow.RemovedIdle {
			t.Errorf("told of %+v", got)
		}
	case <-time.After(networktest.Timeout):
		t.Fatal("the owner was not told")
	}
	if len(o.Keys()) != 0 {
		t.Errorf("keys are left: %v", o.Keys())
	}
}

func TestGroupsComeBeforeTheirRules(t *testing.T) {
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	o.Ready()
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	cut := networktest.Connect(t, n, s, 1)
	id := o.GroupID(7)
	r := networktest.TCPTo(1, 80, 1)
	r.Actions = []openflow.Action{openflow.GroupAction(id)}
	p := network.Program{
		Rules:  []network.Rule{r},
		Groups: []network.Group{{Switch: 1, ID: id, Type: openflow.GroupTypeAll, Buckets: []openflow.Bucket{openflow.NewBucket(openflow.Output(2))}}},
	}
	networktest.Apply(t, o, "k", p, network.ApplyOptions{})
	got := s.Table().Send(1, fake.PacketOf(frameTo80()))
	if len(got.Outputs) != 1 || got.Outputs[0].Port != 2 {
		t.Fatalf("the packet goes to %v, want port 2 by the group", got.Ports())
	}
	cut()
	networktest.Down(t, n, 1)
	if _, e := s.Table().Group(&openflow.GroupMod{Command: openflow.GroupDelete, Group: openflow.GroupAll}); e != nil {
		t.Fatal(e)
	}
	networktest.Connect(t, n, s, 1)
	if got := s.Table().Send(1, fake.PacketOf(frameTo80())); len(got.Outputs) != 1 || got.Outputs[0].Port != 2 {
		t.Fatalf("after reconnecting the packet goes to %v, want port 2", got.Ports())
	}
	if err := o.Remove(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if g := s.Table().Groups(); len(g) != 0 {
		t.Errorf("groups are left: %v", g)
	}
}

func frameTo80() []byte {
	f := networktest.Frame(1, 2)
	f[36], f[37] = 0, 80
	return f
}

// TestApplyEndsWithItsContext checks that a switch which never answers a barrier does not block
// the caller for ever.
func TestApplyEndsWithItsContext(t *testing.T) {
	silent := make(chan struct{})
	var o *network.Owner
	config := network.Config{RequestTimeout: 200 * time.Millisecond}
	n, _ := networktest.Start(t, config, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, Refuse: func(m openflow.Message) *openflow.Error {
		if f, ok := m.(*openflow.FlowMod); ok && f.Match == networktest.TCPTo(1, 80, 1).Match && f.Command == openflow.FlowAdd {
			<-silent
		}
		return nil
	}})
	networktest.Connect(t, n, s, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := o.Apply(ctx, "k", networktest.Program(networktest.TCPTo(1, 80, 1)), network.ApplyOptions{})
	close(silent)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error is %v, want the deadline's", err)
	}
	networktest.Eventually(t, "the rule to be taken back", func() bool { return len(networktest.ServiceRules(s)) == 0 })
}
