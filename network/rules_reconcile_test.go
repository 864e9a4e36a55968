package network_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// many returns a program with so many rules that reconciliation sends them in several parts.
func many(d openflow.DatapathID) network.Program {
	var p network.Program
	for i := range uint16(1500) {
		r := networktest.TCPTo(d, 1000+i, 1)
		r.Stage, r.Offset = network.StageAdmit, i
		p.Rules = append(p.Rules, r)
	}
	return p
}

// TestChangesDuringReconciliationLast checks that a change made while a switch is being reconciled
// is not undone by the operations that the reconciliation still has to send.
func TestChangesDuringReconciliationLast(t *testing.T) {
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	var once sync.Once
	ended := make(chan error, 2)
	last, gone := networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 1)
	last.Stage, gone.Stage = network.StageAdmit, network.StageAdmit
	last.Offset, gone.Offset = 2000, 2001 // written last
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4, Refuse: func(m openflow.Message) *openflow.Error {
		f, ok := m.(*openflow.FlowMod)
		if !ok || f.Match != networktest.TCPTo(1, 1100, 1).Match {
			return nil
		}
		once.Do(func() { // reconciliation is in its first part
			changed := last
			changed.Actions = []openflow.Action{openflow.Output(3)}
			go func() { ended <- o.Apply(t.Context(), "last", networktest.Program(changed), network.ApplyOptions{}) }()
			go func() { ended <- o.Remove(t.Context(), "gone") }()
			for deadline := time.Now().Add(networktest.Timeout); time.Now().Before(deadline); {
				r := o.Rules("last")
				if len(o.Rules("gone")) == 0 && r[0].Actions[0].Port() == 3 {
					return
				}
			}
		})
		return nil
	}})
	networktest.Apply(t, o, "many", many(1), network.ApplyOptions{AllowDown: true})
	networktest.Apply(t, o, "last", networktest.Program(last), network.ApplyOptions{AllowDown: true})
	networktest.Apply(t, o, "gone", networktest.Program(gone), network.ApplyOptions{AllowDown: true})
	networktest.Connect(t, n, s, 1)
	for range 2 {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	got := networktest.ServiceRules(s)
	if got[80] != 3 {
		t.Errorf("the changed rule goes to port %d, want 3", got[80])
	}
	if _, there := got[81]; there {
		t.Error("the removed rule is back")
	}
}

// TestRuleRefusedAtReconciliationIsNotConfirmed checks that a rule which the switch refuses at
// reconciliation does not count as confirmed, and is sent again when it is declared again.
func TestRuleRefusedAtReconciliationIsNotConfirmed(t *testing.T) {
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	var once sync.Once
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4, Refuse: func(m openflow.Message) (e *openflow.Error) {
		if f, ok := m.(*openflow.FlowMod); ok && f.Match == networktest.TCPTo(1, 80, 1).Match {
			once.Do(func() { e = &openflow.Error{Code: openflow.FlowModTableFull} })
		}
		return e
	}})
	networktest.Apply(t, o, "k", networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 1)), network.ApplyOptions{AllowDown: true})
	networktest.Connect(t, n, s, 1)
	networktest.WantRules(t, s, map[uint16]uint32{81: 1})
	for _, r := range o.Rules("k") {
		if want := r.Match == networktest.TCPTo(1, 81, 1).Match; r.Confirmed != want {
			t.Errorf("rule %v: confirmed is %v, want %v", r.Match, r.Confirmed, want)
		}
	}
	networktest.Apply(t, o, "k", networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 1)), network.ApplyOptions{})
	networktest.WantRules(t, s, map[uint16]uint32{80: 1, 81: 1})
}

// restarted installs a program by one controller, and returns the owner of the next controller,
// which has not declared anything yet.
func restarted(t *testing.T, s *fake.Switch, p func(*network.Owner) network.Program) *network.Owner {
	t.Helper()
	var o *network.Owner
	register := func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) }
	n, stop := networktest.Start(t, network.Config{Generation: 1}, register)
	cut := networktest.Connect(t, n, s, 1)
	networktest.Apply(t, o, "k", p(o), network.ApplyOptions{})
	stop()
	cut()
	n, _ = networktest.Start(t, network.Config{Generation: 2}, register)
	networktest.Connect(t, n, s, 1)
	return o
}

// TestFailedRedeclarationInterruptsNothing checks that rules from before a restart stay in effect
// until the owner is ready, even if declaring them again fails.
func TestFailedRedeclarationInterruptsNothing(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	o := restarted(t, s, func(*network.Owner) network.Program {
		return networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 1))
	})
	s.Table().SetLimit(len(s.Table().Entries()))
	err := o.Apply(t.Context(), "k", networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 2), networktest.TCPTo(1, 82, 1)), network.ApplyOptions{})
	if !errors.Is(err, network.ErrRefused) {
		t.Fatalf("error is %v, want one that wraps ErrRefused", err)
	}
	networktest.WantRules(t, s, map[uint16]uint32{80: 1, 81: 1})
	s.Table().SetLimit(fake.MaxEntries)
	networktest.Apply(t, o, "k", networktest.Program(networktest.TCPTo(1, 80, 1)), network.ApplyOptions{})
	o.Ready()
	networktest.Eventually(t, "the rule nobody declared to be gone", func() bool { return len(networktest.ServiceRules(s)) == 1 })
	networktest.WantRules(t, s, map[uint16]uint32{80: 1})
}

// grouped returns a program that sends TCP port 80 to a group and a meter.
func grouped(o *network.Owner, outs ...uint32) network.Program {
	id := o.GroupID(7)
	r := networktest.TCPTo(1, 80, 1)
	r.Meter, r.Actions = 3, []openflow.Action{openflow.GroupAction(id)}
	g := network.Group{Switch: 1, ID: id, Type: openflow.GroupTypeAll}
	for _, out := range outs {
		g.Buckets = append(g.Buckets, openflow.NewBucket(openflow.Output(out)))
	}
	return network.Program{
		Rules: []network.Rule{r}, Groups: []network.Group{g},
		Meters: []network.Meter{{Switch: 1, ID: 3, Flags: openflow.MeterFlagKbps, Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: 1000}}}},
	}
}

// TestGroupsAreDeclaredAgainAfterARestart checks that groups and meters from before a restart are
// taken over, as rules are, when they are declared after the switch has connected.
func TestGroupsAreDeclaredAgainAfterARestart(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	o := restarted(t, s, func(o *network.Owner) network.Program { return grouped(o, 2) })
	before := s.Count(openflow.TypeGroupMod) + s.Count(openflow.TypeMeterMod)
	networktest.Apply(t, o, "k", grouped(o, 2), network.ApplyOptions{})
	if sent := s.Count(openflow.TypeGroupMod) + s.Count(openflow.TypeMeterMod) - before; sent != 0 {
		t.Errorf("%d group-mods and meter-mods were sent, want none", sent)
	}
	networktest.Apply(t, o, "k", grouped(o, 2, 3), network.ApplyOptions{})
	o.Ready()
	if got := s.Table().Send(1, fake.PacketOf(frameTo80())); len(got.Outputs) != 2 {
		t.Errorf("the packet goes to %v, want ports 2 and 3", got.Ports())
	}
	if err := o.Remove(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if g, m := s.Table().Groups(), s.Table().Meters(); len(g)+len(m) != 0 {
		t.Errorf("groups %v and meters %v are left", g, m)
	}
}

// TestGroupsNobodyWantsGoWhenTheOwnerIsReady checks that a group that is not declared again is
// deleted when its owner is ready.
func TestGroupsNobodyWantsGoWhenTheOwnerIsReady(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	o := restarted(t, s, func(o *network.Owner) network.Program { return grouped(o, 2) })
	if len(s.Table().Groups()) != 1 {
		t.Fatal("the group has gone before the owner is ready")
	}
	o.Ready()
	networktest.Eventually(t, "the group to be gone", func() bool { return len(s.Table().Groups()) == 0 })
}

// TestRollbackRestoresGroupsBeforeRules checks that a rollback restores groups before the rules
// that use them.
func TestRollbackRestoresGroupsBeforeRules(t *testing.T) {
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	one, two := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4}), fake.NewSwitch(fake.Options{DPID: 2, Ports: 4})
	networktest.Connect(t, n, one, 1)
	networktest.Connect(t, n, two, 2)
	o.Ready()
	networktest.Apply(t, o, "k", grouped(o, 2), network.ApplyOptions{Atomic: true})
	two.Table().SetLimit(len(two.Table().Entries()))
	err := o.Apply(t.Context(), "k", networktest.Program(networktest.TCPTo(1, 80, 3), networktest.TCPTo(2, 80, 1)), network.ApplyOptions{Atomic: true})
	if !errors.Is(err, network.ErrRefused) {
		t.Fatalf("error is %v, want one that wraps ErrRefused", err)
	}
	if got := one.Table().Send(1, fake.PacketOf(frameTo80())); len(got.Outputs) != 1 || got.Outputs[0].Port != 2 {
		t.Errorf("after the rollback the packet goes to %v, want port 2 by the group", got.Ports())
	}
}
