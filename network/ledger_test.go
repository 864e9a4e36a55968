package network_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// tcpTo is a service's rule for TCP to a port.
func tcpTo(dpid openflow.DatapathID, port uint16, out uint32) network.Rule {
	return network.Rule{
		Switch: dpid, Stage: network.StageRewrite,
		Match:   openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(port)),
		Actions: []openflow.Action{openflow.Output(out)},
	}
}

func program(rules ...network.Rule) network.Program { return network.Program{Rules: rules} }

// serviceRules are the entries of the stage rewrite, by TCP port, and where they go.
func serviceRules(s *fake.Switch) map[uint16]uint32 {
	out := map[uint16]uint32{}
	for _, e := range s.Table().Entries() {
		if o, ok := e.Match.Get(openflow.FieldTCPDst); ok && e.Priority >= network.StageRewrite.Base() {
			out[uint16(o.Uint())] = e.Instructions[0].Actions[0].Arg
		}
	}
	return out
}

func wantRules(t *testing.T, s *fake.Switch, want map[uint16]uint32) {
	t.Helper()
	got := serviceRules(s)
	if len(got) != len(want) {
		t.Fatalf("the switch has rules %v, want %v", got, want)
	}
	for p, out := range want {
		if got[p] != out {
			t.Fatalf("the switch has rules %v, want %v", got, want)
		}
	}
}

func apply(t *testing.T, o *network.Owner, key string, p network.Program, opts network.ApplyOptions) {
	t.Helper()
	if err := o.Apply(t.Context(), key, p, opts); err != nil {
		t.Fatal(err)
	}
}

func TestApplySendsOnlyTheDifference(t *testing.T) {
	var o *network.Owner
	n, _ := start(t, network.Config{}, func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{}) })
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	connect(t, n, s, 1)
	edges(t, n, 1, 4)
	base := s.FlowMods()
	steps := []struct {
		name string
		p    network.Program
		sent int
		want map[uint16]uint32
	}{
		{"two new rules", program(tcpTo(1, 80, 1), tcpTo(1, 81, 2)), 2, map[uint16]uint32{80: 1, 81: 2}},
		{"nothing new", program(tcpTo(1, 81, 2), tcpTo(1, 80, 1)), 0, map[uint16]uint32{80: 1, 81: 2}},
		{"one changed", program(tcpTo(1, 80, 3), tcpTo(1, 81, 2)), 1, map[uint16]uint32{80: 3, 81: 2}},
		{"one replaced by another", program(tcpTo(1, 82, 3), tcpTo(1, 81, 2)), 2, map[uint16]uint32{82: 3, 81: 2}},
		{"none left", program(), 2, map[uint16]uint32{}},
	}
	for _, st := range steps {
		apply(t, o, "k", st.p, network.ApplyOptions{})
		wantRules(t, s, st.want)
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
			n, _ := start(t, network.Config{}, func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{}) })
			one := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
			two := fake.NewSwitch(fake.Options{DPID: 2, Ports: 4})
			connect(t, n, one, 1)
			connect(t, n, two, 2)
			apply(t, o, "k", program(tcpTo(1, 80, 1), tcpTo(2, 80, 1)), tc.opts)
			two.Table().SetLimit(len(two.Table().Entries()))
			err := o.Apply(t.Context(), "k", program(tcpTo(1, 80, 2), tcpTo(1, 81, 2), tcpTo(2, 80, 2), tcpTo(2, 81, 2)), tc.opts)
			var re *network.RuleError
			if !errors.Is(err, network.ErrRefused) || !errors.As(err, &re) {
				t.Fatalf("error is %v, want one that wraps ErrRefused", err)
			}
			if re.Switch != 2 || re.Reply == nil || re.Reply.Code != openflow.FlowModTableFull {
				t.Errorf("error does not name switch 2 and a full table: %v", err)
			}
			if !tc.opts.Atomic && (re.Rule == nil || re.Rule.Match != tcpTo(2, 81, 2).Match) {
				t.Errorf("error does not name the refused rule: %v", err)
			}
			wantRules(t, one, map[uint16]uint32{80: 1})
			wantRules(t, two, map[uint16]uint32{80: 1})
			if got := o.Rules("k"); len(got) != 2 {
				t.Errorf("the ledger holds %d rules, want the 2 from before", len(got))
			}
		})
	}
}

func TestApplyRefusesWhatCannotBe(t *testing.T) {
	var o, other *network.Owner
	n, _ := start(t, network.Config{}, func(n *network.Network) {
		o, other = owner(t, n, "svc", network.OwnerOptions{}), owner(t, n, "other", network.OwnerOptions{})
	})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2})
	connect(t, n, s, 1)
	apply(t, other, "theirs", program(tcpTo(1, 99, 1)), network.ApplyOptions{})
	bad := tcpTo(1, 80, 1)
	bad.Offset = 10000
	noStage := tcpTo(1, 80, 1)
	noStage.Stage = 0
	back := tcpTo(1, 80, 1)
	back.Stage, back.Goto = network.StageRoute, rule.TableService
	long := tcpTo(1, 80, 1)
	long.Idle = 100 * time.Hour
	for name, tc := range map[string]struct {
		p    network.Program
		want error
	}{
		"a switch that is not there": {program(tcpTo(7, 80, 1)), network.ErrSwitchDown},
		"another owner's place":      {program(tcpTo(1, 99, 2)), network.ErrConflict},
		"the same rule twice":        {program(tcpTo(1, 80, 1), tcpTo(1, 80, 2)), network.ErrInvalid},
		"an offset beyond the stage": {program(bad), network.ErrInvalid},
		"no stage":                   {program(noStage), network.ErrInvalid},
		"going to an earlier table":  {program(back), network.ErrInvalid},
		"a timeout too long":         {program(long), network.ErrInvalid},
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
	n, _ := start(t, network.Config{}, func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{}) })
	o.Ready()
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	cut := connect(t, n, s, 1)
	edges(t, n, 1, 4)
	apply(t, o, "a", program(tcpTo(1, 80, 1), tcpTo(1, 81, 1)), network.ApplyOptions{})
	reconnect := func(what string, sent int) {
		t.Helper()
		cut()
		down(t, n, 1)
		before := s.FlowMods()
		cut = connect(t, n, s, 1)
		edges(t, n, 1, 4)
		if got := s.FlowMods() - before; got != sent {
			t.Errorf("%s: %d flow-mods were sent, want %d", what, got, sent)
		}
		wantRules(t, s, map[uint16]uint32{80: 1, 81: 1})
	}
	reconnect("nothing changed", 0)
	remove(t, s, 80)
	reconnect("one rule lost", 1)
	orphan := openflow.NewFlowMod(openflow.FlowAdd, 0, network.StageRewrite.Base(), tcpTo(1, 90, 1).Match, openflow.ApplyActions(openflow.Output(1)))
	orphan.Cookie = uint64(o.Rules("a")[0].Cookie)
	if _, e := s.Table().Flow(orphan); e != nil {
		t.Fatal(e)
	}
	reconnect("an orphan with our cookie", 1)
}

// remove deletes a service rule behind the controller's back.
func remove(t *testing.T, s *fake.Switch, port uint16) {
	t.Helper()
	m := openflow.NewFlowMod(openflow.FlowDeleteStrict, 0, network.StageRewrite.Base(), tcpTo(1, port, 1).Match)
	if gone, e := s.Table().Flow(m); e != nil || len(gone) != 1 {
		t.Fatalf("deleted %d rules: %v", len(gone), e)
	}
}

// A controller that starts again finds its rules on the switch. Those that are
// declared again are not touched; the others stay until the owner is ready.
func TestRestartKeepsRulesThatAreDeclaredAgain(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	var o *network.Owner
	register := func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{}) }
	n, stop := start(t, network.Config{Generation: 1}, register)
	cut := connect(t, n, s, 1)
	edges(t, n, 1, 4)
	apply(t, o, "a", program(tcpTo(1, 80, 1)), network.ApplyOptions{})
	apply(t, o, "b", program(tcpTo(1, 81, 2)), network.ApplyOptions{})
	apply(t, o, "c", program(tcpTo(1, 82, 3)), network.ApplyOptions{})
	stop()
	cut()

	n, _ = start(t, network.Config{Generation: 2}, register)
	before := s.FlowMods()
	apply(t, o, "a", program(tcpTo(1, 80, 1)), network.ApplyOptions{AllowDown: true}) // before the switch is there
	connect(t, n, s, 1)
	edges(t, n, 1, 4)
	apply(t, o, "b", program(tcpTo(1, 81, 2)), network.ApplyOptions{}) // and after
	wantRules(t, s, map[uint16]uint32{80: 1, 81: 2, 82: 3})
	if sent := s.FlowMods() - before; sent != 0 {
		t.Errorf("%d flow-mods were sent, want none", sent)
	}
	if r := o.Rules("b"); len(r) != 1 || r[0].Cookie.Generation() != 1 || !r[0].Confirmed {
		t.Errorf("rule b is held as %+v, want the one of generation 1, confirmed", r)
	}
	o.Ready()
	eventually(t, "the rule nobody declared to be gone", func() bool { return len(serviceRules(s)) == 2 })
	wantRules(t, s, map[uint16]uint32{80: 1, 81: 2})
	if sent := s.FlowMods() - before; sent != 1 {
		t.Errorf("%d flow-mods were sent, want one deletion", sent)
	}
	if err := o.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	wantRules(t, s, map[uint16]uint32{81: 2})
}

func TestAdoptTakesInWhatIsFound(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	var o *network.Owner
	register := func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{Adopt: true}) }
	n, stop := start(t, network.Config{}, register)
	cut := connect(t, n, s, 1)
	apply(t, o, "a", program(tcpTo(1, 80, 1)), network.ApplyOptions{})
	stop()
	cut()
	n, _ = start(t, network.Config{}, register)
	o.Ready()
	connect(t, n, s, 1)
	if got := o.Rules("adopted"); len(got) != 1 {
		t.Fatalf("adopted %v, want one rule", got)
	}
	wantRules(t, s, map[uint16]uint32{80: 1})
	if err := o.Remove(t.Context(), "adopted"); err != nil {
		t.Fatal(err)
	}
	wantRules(t, s, map[uint16]uint32{})
}

func TestRemovedRulesReachTheirOwner(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	removed := make(chan network.Removed, 4)
	var o *network.Owner
	n, _ := start(t, network.Config{}, func(n *network.Network) {
		o = owner(t, n, "svc", network.OwnerOptions{OnRemoved: func(r network.Removed) { removed <- r }})
	})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, Clock: clock})
	connect(t, n, s, 1)
	r := tcpTo(1, 80, 1)
	r.Idle, r.NotifyRemoved = 1500*time.Millisecond, true
	apply(t, o, "k", program(r), network.ApplyOptions{})
	now = now.Add(1900 * time.Millisecond)
	if err := s.Expire(); err != nil {
		t.Fatal(err)
	}
	wantRules(t, s, map[uint16]uint32{80: 1}) // timeouts are rounded up
	now = now.Add(time.Second)
	if err := s.Expire(); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-removed:
		if got.Name != "k" || got.Match != r.Match || got.Reason != openflow.RemovedIdle {
			t.Errorf("told of %+v", got)
		}
	case <-time.After(patience):
		t.Fatal("the owner was not told")
	}
	if len(o.Keys()) != 0 {
		t.Errorf("keys are left: %v", o.Keys())
	}
}

func TestGroupsComeBeforeTheirRules(t *testing.T) {
	var o *network.Owner
	n, _ := start(t, network.Config{}, func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{}) })
	o.Ready()
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	cut := connect(t, n, s, 1)
	id := o.GroupID(7)
	r := tcpTo(1, 80, 1)
	r.Actions = []openflow.Action{openflow.GroupAction(id)}
	p := network.Program{
		Rules:  []network.Rule{r},
		Groups: []network.Group{{Switch: 1, ID: id, Type: openflow.GroupTypeAll, Buckets: []openflow.Bucket{openflow.NewBucket(openflow.Output(2))}}},
	}
	apply(t, o, "k", p, network.ApplyOptions{})
	got := s.Table().Send(1, fake.PacketOf(frameTo80()))
	if len(got.Outputs) != 1 || got.Outputs[0].Port != 2 {
		t.Fatalf("the packet goes to %v, want port 2 by the group", got.Ports())
	}
	cut()
	down(t, n, 1)
	if _, e := s.Table().Group(&openflow.GroupMod{Command: openflow.GroupDelete, Group: openflow.GroupAll}); e != nil {
		t.Fatal(e)
	}
	connect(t, n, s, 1)
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
	f := frame(1, 2)
	f[36], f[37] = 0, 80
	return f
}

// A switch that never answers its barrier must not hold the caller for ever.
func TestApplyEndsWithItsContext(t *testing.T) {
	silent := make(chan struct{})
	var o *network.Owner
	config := network.Config{RequestTimeout: 200 * time.Millisecond}
	n, _ := start(t, config, func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{}) })
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, Refuse: func(m openflow.Message) *openflow.Error {
		if f, ok := m.(*openflow.FlowMod); ok && f.Match == tcpTo(1, 80, 1).Match && f.Command == openflow.FlowAdd {
			<-silent
		}
		return nil
	}})
	connect(t, n, s, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := o.Apply(ctx, "k", program(tcpTo(1, 80, 1)), network.ApplyOptions{})
	close(silent)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error is %v, want the deadline's", err)
	}
	eventually(t, "the rule to be taken back", func() bool { return len(serviceRules(s)) == 0 })
}
