package network_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// compareOften makes comparisons follow each other so closely that a test need not wait for them.
const compareOften = 20 * time.Millisecond

// onlyRemovals leaves only the comparisons that a removed rule causes.
const onlyRemovals = -1

// drifts collects the events about deviations of switches.
type drifts struct {
	mu     sync.Mutex
	events []network.Event
}

func (d *drifts) watch(n *network.Network) {
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.SwitchDrifted {
			d.mu.Lock()
			d.events = append(d.events, e)
			d.mu.Unlock()
		}
	})
}

func (d *drifts) all() []network.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events)
}

// compared is a network with a fake switch, and an owner of rules.
type compared struct {
	*drifts
	n *network.Network
	o *network.Owner
	s *fake.Switch
}

// startCompared starts a network without default forwarding that compares its switch at an
// interval.
func startCompared(t *testing.T, interval time.Duration, opts fake.Options, owner network.OwnerOptions) *compared {
	t.Helper()
	return startWith(t, network.Config{CompareInterval: interval, DisableForwarding: true}, opts, owner)
}

// startWith starts a network with a configuration.
func startWith(t *testing.T, config network.Config, opts fake.Options, owner network.OwnerOptions) *compared {
	t.Helper()
	c := &compared{drifts: &drifts{}}
	opts.DPID, opts.Ports = 1, 4
	c.s = fake.NewSwitch(opts)
	c.n, _ = networktest.Start(t, config, c.watch, func(n *network.Network) { c.o = networktest.Owner(t, n, "svc", owner) })
	c.o.Ready()
	networktest.Connect(t, c.n, c.s, 1)
	return c
}

// stats returns the counts of deviations.
func (c *compared) stats() network.DriftStats {
	if sw, ok := c.n.Switch(1); ok {
		return sw.Stats().Drift
	}
	return network.DriftStats{}
}

// awaitComparisons waits until two more comparisons have ended: the second of them has begun after
// the call.
func (c *compared) awaitComparisons(t *testing.T) {
	t.Helper()
	before := c.stats().Comparisons
	networktest.Eventually(t, "two comparisons", func() bool { return c.stats().Comparisons >= before+2 })
}

// deleteAllRules is what ovs-ofctl del-flows sends.
func deleteAllRules() openflow.Message {
	return openflow.NewFlowMod(openflow.FlowDelete, openflow.TableAll, 0, openflow.Match{})
}

// total returns the deviations of an owner and kind.
func (c *compared) total(owner string, o string) network.Deviation {
	for _, d := range c.stats().Deviations {
		if d.Owner == owner && string(d.Object) == o {
			return d
		}
	}
	return network.Deviation{}
}

// TestDeletedRulesComeBackAtOnce checks that rules which another program deletes are written again
// because of the switch's notices, without a steady comparison, and that it is reported by owner.
func TestDeletedRulesComeBackAtOnce(t *testing.T) {
	c := startCompared(t, onlyRemovals, fake.Options{}, network.OwnerOptions{})
	networktest.Apply(t, c.o, "k", networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 2)), network.ApplyOptions{})
	before := len(c.s.Table().Entries())
	if err := c.s.Change(deleteAllRules()); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the rules to be back", func() bool { return len(c.s.Table().Entries()) == before })
	networktest.WantRules(t, c.s, map[uint16]uint32{80: 1, 81: 2})
	networktest.Eventually(t, "the event", func() bool { return len(c.all()) > 0 })
	e := c.all()[0]
	var got []string
	for _, d := range e.Drift {
		got = append(got, fmt.Sprintf("%s %s %d/%d/%d", d.Owner, d.Object, d.Missing, d.Changed, d.Foreign))
	}
	if want := []string{fmt.Sprintf("network rule %d/0/0", before-2), "svc rule 2/0/0"}; e.Switch != 1 || e.Reason != "" || !slices.Equal(got, want) {
		t.Errorf("the event tells of %v at switch %v (%s), want %v", got, e.Switch, e.Reason, want)
	}
	if got := c.stats(); got.Total() != before || got.Last.IsZero() {
		t.Errorf("the counts are %+v, want %d in all", got, before)
	}
}

// TestOneDeletedRuleComesBackAtOnce checks the same for a single rule, and that the owner can still
// remove it.
func TestOneDeletedRuleComesBackAtOnce(t *testing.T) {
	c := startCompared(t, onlyRemovals, fake.Options{Tables: 4}, network.OwnerOptions{})
	networktest.Apply(t, c.o, "k", networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 2)), network.ApplyOptions{})
	if err := c.s.Change(openflow.NewFlowMod(openflow.FlowDelete, openflow.TableAll, 0, networktest.TCPTo(1, 80, 1).Match)); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the rule to be back", func() bool { return len(networktest.ServiceRules(c.s)) == 2 })
	if err := c.o.Remove(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	networktest.WantRules(t, c.s, map[uint16]uint32{})
	if got := c.total("svc", "rule"); got.Missing != 1 || got.Changed+got.Foreign != 0 {
		t.Errorf("counted %+v, want one missing rule", got)
	}
}

// TestComparisonFindsWhatNobodyTold checks that a comparison repairs what has changed without a
// notice of the switch.
func TestComparisonFindsWhatNobodyTold(t *testing.T) {
	silently := func(c *compared, messages ...openflow.Message) error {
		for _, m := range messages {
			var e *openflow.Error
			switch m := m.(type) {
			case *openflow.FlowMod:
				_, e = c.s.Table().Flow(m)
			case *openflow.GroupMod:
				_, e = c.s.Table().Group(m)
			case *openflow.MeterMod:
				e = c.s.Table().Meter(m)
			}
			if e != nil {
				return e
			}
		}
		return nil
	}
	id := func(c *compared) uint32 { return c.o.GroupID(7) }
	for name, test := range map[string]struct {
		disturb func(*compared) []openflow.Message
		want    map[string]string // by kind: missing/changed/foreign of the owner
	}{
		"rule deleted": {
			func(*compared) []openflow.Message {
				return []openflow.Message{openflow.NewFlowMod(openflow.FlowDelete, openflow.TableAll, 0, networktest.TCPTo(1, 80, 1).Match)}
			},
			map[string]string{"rule": "1/0/0"},
		},
		"actions changed": {
			func(*compared) []openflow.Message {
				return []openflow.Message{openflow.NewFlowMod(openflow.FlowModify, 0, 0, networktest.TCPTo(1, 80, 1).Match, openflow.ApplyActions(openflow.Output(4)))}
			},
			map[string]string{"rule": "0/1/0"},
		},
		"rule added": {
			func(c *compared) []openflow.Message {
				m := openflow.NewFlowMod(openflow.FlowAdd, 0, 7, openflow.MustMatch(openflow.InPort(3)))
				for _, r := range c.o.Rules("k") {
					m.Cookie = uint64(r.Cookie) + 100
				}
				return []openflow.Message{m}
			},
			map[string]string{"rule": "0/0/1"},
		},
		"group deleted": {
			func(c *compared) []openflow.Message {
				return []openflow.Message{&openflow.GroupMod{Command: openflow.GroupDelete, Group: id(c)}}
			},
			map[string]string{"rule": "1/0/0", "group": "1/0/0"},
		},
		"group changed": {
			func(c *compared) []openflow.Message {
				return []openflow.Message{&openflow.GroupMod{Command: openflow.GroupModify, Group: id(c), Type: openflow.GroupTypeAll}}
			},
			map[string]string{"group": "0/1/0"},
		},
		"group added": {
			func(c *compared) []openflow.Message {
				return []openflow.Message{&openflow.GroupMod{Command: openflow.GroupAdd, Group: c.o.GroupID(8), Type: openflow.GroupTypeAll}}
			},
			map[string]string{"group": "0/0/1"},
		},
		"meter deleted": {
			func(*compared) []openflow.Message {
				return []openflow.Message{&openflow.MeterMod{Command: openflow.MeterDelete, Meter: 3}}
			},
			map[string]string{"rule": "1/0/0", "meter": "1/0/0"},
		},
		"meter changed": {
			func(*compared) []openflow.Message {
				return []openflow.Message{&openflow.MeterMod{Command: openflow.MeterModify, Meter: 3, Flags: openflow.MeterFlagKbps}}
			},
			map[string]string{"meter": "0/1/0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCompared(t, compareOften, fake.Options{}, network.OwnerOptions{})
			networktest.Apply(t, c.o, "k", grouped(c.o, 2), network.ApplyOptions{})
			c.awaitComparisons(t)
			if got := c.stats(); got.Total() != 0 {
				t.Fatalf("nothing was disturbed, and %+v is counted", got)
			}
			before := tablesOf(c.s)
			if err := silently(c, test.disturb(c)...); err != nil {
				t.Fatal(err)
			}
			if tablesOf(c.s) == before {
				t.Fatal("the disturbance changes nothing")
			}
			networktest.Eventually(t, "the tables to be as declared", func() bool { return tablesOf(c.s) == before })
			c.awaitComparisons(t)
			for _, kind := range []string{"rule", "group", "meter"} {
				d := c.total("svc", kind)
				if got, want := fmt.Sprintf("%d/%d/%d", d.Missing, d.Changed, d.Foreign), test.want[kind]; got != want && (got != "0/0/0" || want != "") {
					t.Errorf("%s: missing/changed/foreign are %s, want %s", kind, got, want)
				}
			}
			if tablesOf(c.s) != before {
				t.Error("the tables do not stay as declared")
			}
		})
	}
}

// tablesOf describes the content of a switch's tables, without counters.
func tablesOf(s *fake.Switch) string {
	var out []string
	for _, e := range s.Table().Entries() {
		out = append(out, fmt.Sprint(e.Table, e.Priority, e.Match, e.Instructions, e.Flags))
	}
	for _, g := range s.Table().Groups() {
		out = append(out, fmt.Sprintf("%+v", g))
	}
	for _, m := range s.Table().Meters() {
		out = append(out, fmt.Sprintf("%+v", m))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

// TestGroupDeletionIsRepairedAtOnce checks that the notices about rules whose group was deleted
// bring back the group as well.
func TestGroupDeletionIsRepairedAtOnce(t *testing.T) {
	c := startCompared(t, onlyRemovals, fake.Options{}, network.OwnerOptions{})
	networktest.Apply(t, c.o, "k", grouped(c.o, 2), network.ApplyOptions{})
	before := tablesOf(c.s)
	if err := c.s.Change(&openflow.GroupMod{Command: openflow.GroupDelete, Group: c.o.GroupID(7)}); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "group and rule to be back", func() bool { return tablesOf(c.s) == before })
}

// TestTimeoutsAreNoDrift checks that a rule which has expired without a notice leaves the ledger and
// is reported to its owner, and that nothing counts as a deviation.
func TestTimeoutsAreNoDrift(t *testing.T) {
	var now lockedTime
	removed := make(chan network.Removed, 4)
	c := startCompared(t, compareOften, fake.Options{Clock: now.get}, network.OwnerOptions{OnRemoved: func(r network.Removed) { removed <- r }})
	idle, hard := networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 1)
	idle.Idle, hard.Hard, idle.NotifyRemoved, hard.NotifyRemoved = time.Second, 5*time.Second, true, true
	networktest.Apply(t, c.o, "k", networktest.Program(idle, hard), network.ApplyOptions{})
	now.add(time.Minute)
	c.s.Table().Expire() // and the notices are lost
	reasons := map[uint8]bool{}
	for range 2 {
		select {
		case r := <-removed:
			reasons[r.Reason] = true
		case <-time.After(networktest.Timeout):
			t.Fatal("the owner was not told")
		}
	}
	if !reasons[openflow.RemovedIdle] || !reasons[openflow.RemovedHard] {
		t.Errorf("the owner was told the reasons %v, want idle and hard", reasons)
	}
	c.awaitComparisons(t)
	if keys := c.o.Keys(); len(keys) != 0 || len(networktest.ServiceRules(c.s)) != 0 || c.total("svc", "rule") != (network.Deviation{}) {
		t.Errorf("the ledger has %v, the switch %v, counted are %+v; want nothing", keys, networktest.ServiceRules(c.s), c.total("svc", "rule"))
	}
}

// lockedTime is a clock that a test moves.
type lockedTime struct {
	mu sync.Mutex
	at time.Time
}

func (l *lockedTime) get() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

func (l *lockedTime) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = l.at.Add(d)
}

// TestExpiredLeaseIsRenewed checks that a leased rule which a switch has removed, because it was
// renewed too late, is written again as long as it is declared.
func TestExpiredLeaseIsRenewed(t *testing.T) {
	var now lockedTime
	c := startCompared(t, onlyRemovals, fake.Options{Clock: now.get}, network.OwnerOptions{})
	r := networktest.TCPTo(1, 80, 1)
	r.Leased = true
	networktest.Apply(t, c.o, "k", networktest.Program(r), network.ApplyOptions{})
	now.add(rule.LeaseFor + time.Second)
	if err := c.s.Expire(); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the rule to be back", func() bool { return len(networktest.ServiceRules(c.s)) == 1 })
	if len(c.o.Rules("k")) != 1 {
		t.Error("the leased rule has left the ledger")
	}
}

// TestRuleWrittenDuringTheReading checks that a rule which is declared while the switch lists its
// rules is no deviation, although the list does not have it, and a rule that is removed then does
// not count as foreign.
func TestRuleWrittenDuringTheReading(t *testing.T) {
	var c *compared
	var once sync.Once
	applied, armed := make(chan error, 2), make(chan struct{})
	c = startCompared(t, compareOften, fake.Options{Refuse: func(m openflow.Message) *openflow.Error {
		q, ok := m.(*openflow.MultipartRequest)
		if !ok {
			return nil
		}
		if _, ok := q.Body.(*openflow.FlowStatsRequest); !ok {
			return nil
		}
		select {
		case <-armed:
		default:
			return nil
		}
		once.Do(func() { // the answer is made after this, and before what is sent now
			go func() {
				applied <- c.o.Apply(t.Context(), "new", networktest.Program(networktest.TCPTo(1, 90, 1)), network.ApplyOptions{})
			}()
			go func() { applied <- c.o.Remove(t.Context(), "old") }()
			for deadline := time.Now().Add(networktest.Timeout); time.Now().Before(deadline); {
				if len(c.o.Rules("new")) == 1 && len(c.o.Rules("old")) == 0 {
					return
				}
			}
		})
		return nil
	}}, network.OwnerOptions{})
	networktest.Apply(t, c.o, "old", networktest.Program(networktest.TCPTo(1, 91, 1)), network.ApplyOptions{})
	close(armed)
	for range 2 {
		if err := <-applied; err != nil {
			t.Fatal(err)
		}
	}
	c.awaitComparisons(t)
	networktest.WantRules(t, c.s, map[uint16]uint32{90: 1})
	if got := c.stats(); got.Total() != 0 {
		t.Errorf("counted %+v, want nothing", got)
	}
}

// TestSwitchThatAlwaysDeletesIsBounded checks that the controller backs off from a switch that
// deletes a rule whenever it is written, and that an examination finds such a switch.
func TestSwitchThatAlwaysDeletesIsBounded(t *testing.T) {
	c := startCompared(t, onlyRemovals, fake.Options{}, network.OwnerOptions{})
	networktest.Apply(t, c.o, "k", networktest.Program(networktest.TCPTo(1, 80, 1)), network.ApplyOptions{})
	deleteIt := openflow.NewFlowMod(openflow.FlowDelete, openflow.TableAll, 0, networktest.TCPTo(1, 80, 1).Match)
	networktest.Eventually(t, "a back-off of 800 ms", func() bool {
		if err := c.s.Change(deleteIt); err != nil {
			t.Fatal(err)
		}
		events := c.all()
		return len(events) > 0 && events[len(events)-1].Pause >= 800*time.Millisecond
	})
	if got := networktest.Faults(networktest.Diagnose(t, c.n, linkprobe.DefaultMTU)); got != "drifting 1/0" {
		t.Errorf("the examination finds %q", got)
	}
	pauses := []time.Duration{}
	for _, e := range c.all() {
		pauses = append(pauses, e.Pause)
	}
	if !slices.IsSorted(pauses) {
		t.Errorf("the back-off does not grow: %v", pauses)
	}
}

// TestEndlessDriftIsBounded checks that a switch which lists any number of unwanted rules again and
// again is sent a limited number of deletions for each list, and causes a limited number of events.
func TestEndlessDriftIsBounded(t *testing.T) {
	const listed, limit = 5000, 4096
	var c *compared
	flows := make([]openflow.FlowStats, listed)
	for i := range flows {
		flows[i] = openflow.FlowStats{
			Priority: 7, Cookie: uint64(rule.MakeCookie(rule.OwnerHash("svc"), 1, uint32(i))),
			Match: openflow.MustMatch(openflow.InPort(uint32(i + 1))),
		}
	}
	armed := make(chan struct{})
	c = startCompared(t, compareOften, fake.Options{Instead: func(xid uint32, m openflow.Message) ([]byte, bool) {
		q, ok := m.(*openflow.MultipartRequest)
		if !ok {
			return nil, false
		}
		if _, ok := q.Body.(*openflow.FlowStatsRequest); !ok {
			return nil, false
		}
		select {
		case <-armed:
		default:
			return nil, false
		}
		var answer []byte
		for some := range slices.Chunk(flows, 100) {
			r := openflow.FlowStatsReply(some)
			answer, _ = (&openflow.MultipartReply{More: true, Body: &r}).AppendTo(answer, xid)
		}
		r := openflow.FlowStatsReply{}
		answer, _ = (&openflow.MultipartReply{Body: &r}).AppendTo(answer, xid)
		return answer, true
	}}, network.OwnerOptions{})
	before := c.s.FlowMods()
	close(armed)
	networktest.Eventually(t, "two comparisons with deviations", func() bool { return len(c.all()) >= 2 })
	for _, e := range c.all() {
		for _, d := range e.Drift {
			if d.Foreign > limit {
				t.Errorf("one comparison deletes %d rules, want %d at most", d.Foreign, limit)
			}
		}
	}
	// The own rules are not in the list, so each comparison writes them as well.
	sent, compared := c.s.FlowMods()-before, int(c.stats().Comparisons)+1
	if own := len(c.s.Table().Entries()); sent > compared*(limit+own) {
		t.Errorf("%d flow-mods were sent in %d comparisons, want %d at most for each", sent, compared, limit+own)
	}
}

// TestRefusedRepairIsTold checks that a rule which the switch does not take back is told, and is
// written when the switch takes it.
func TestRefusedRepairIsTold(t *testing.T) {
	c := startCompared(t, compareOften, fake.Options{}, network.OwnerOptions{})
	networktest.Apply(t, c.o, "k", networktest.Program(networktest.TCPTo(1, 80, 1)), network.ApplyOptions{})
	c.s.Table().SetLimit(0)
	if err := c.s.Change(openflow.NewFlowMod(openflow.FlowDelete, openflow.TableAll, 0, networktest.TCPTo(1, 80, 1).Match)); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the event", func() bool { return len(c.all()) > 0 })
	if e := c.all()[0]; e.Reason == "" {
		t.Error("the event does not say that the switch has refused the rule")
	}
	c.awaitComparisons(t)
	if got := c.total("svc", "rule"); got.Missing != 1 {
		t.Errorf("counted %+v, want the rule once", got)
	}
	c.s.Table().SetLimit(fake.MaxEntries)
	networktest.Eventually(t, "the rule to be back", func() bool { return len(networktest.ServiceRules(c.s)) == 1 })
}

// TestOwnersThatAreNotReadyKeepTheirRules checks that comparisons leave rules of before a restart
// alone until their owner is ready, and that a rule which has gone meanwhile is written when it is
// declared again.
func TestOwnersThatAreNotReadyKeepTheirRules(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	declared := networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 1))
	c := &compared{drifts: &drifts{}, s: s}
	register := func(n *network.Network) { c.o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) }
	n, stop := networktest.Start(t, network.Config{Generation: 1}, register)
	cut := networktest.Connect(t, n, s, 1)
	networktest.Apply(t, c.o, "k", declared, network.ApplyOptions{})
	stop()
	cut()
	c.n, _ = networktest.Start(t, network.Config{Generation: 2, CompareInterval: compareOften}, c.watch, register)
	networktest.Connect(t, c.n, s, 1)
	c.awaitComparisons(t)
	networktest.WantRules(t, s, map[uint16]uint32{80: 1, 81: 1})
	if _, e := s.Table().Flow(openflow.NewFlowMod(openflow.FlowDelete, openflow.TableAll, 0, networktest.TCPTo(1, 80, 1).Match)); e != nil {
		t.Fatal(e)
	}
	c.awaitComparisons(t)
	networktest.Apply(t, c.o, "k", declared, network.ApplyOptions{})
	networktest.WantRules(t, s, map[uint16]uint32{80: 1, 81: 1})
	if got := c.stats(); got.Total() != 0 {
		t.Errorf("counted %+v, want nothing: nobody had declared these rules", got)
	}
}

// TestForwardingFlowsAreCompared checks that a flow of default forwarding whose rule was deleted
// without a notice, or has another output, is decided anew, and that an unknown rule is deleted.
func TestForwardingFlowsAreCompared(t *testing.T) {
	c := startWith(t, network.Config{CompareInterval: compareOften}, fake.Options{}, network.OwnerOptions{})
	networktest.Edges(t, c.n, 1, 4)
	receive := func(port uint32, from, to int) {
		t.Helper()
		if _, err := c.s.Receive(port, networktest.Frame(from, to)); err != nil {
			t.Fatal(err)
		}
	}
	flows := func() (out []fake.Entry) {
		for _, e := range c.s.Table().Entries() {
			if e.IdleTimeout > 0 {
				out = append(out, e)
			}
		}
		return out
	}
	receive(1, 1, 2)
	receive(2, 2, 1)
	networktest.Eventually(t, "the rule of a flow", func() bool {
		receive(1, 1, 2)
		return len(flows()) > 0
	})
	e := flows()[0]
	sw, _ := c.n.Switch(1)
	strict := func(command uint8, priority uint16, out uint32) *openflow.FlowMod {
		m := openflow.NewFlowMod(command, e.Table, priority, e.Match, openflow.ApplyActions(openflow.Output(out)))
		m.Cookie, m.IdleTimeout, m.Flags = e.Cookie, e.IdleTimeout, e.Flags
		return m
	}
	apply := func(m *openflow.FlowMod) {
		t.Helper()
		if _, err := c.s.Table().Flow(m); err != nil {
			t.Fatal(err)
		}
	}
	apply(strict(openflow.FlowDeleteStrict, e.Priority, 0))
	networktest.Eventually(t, "the flow to be forgotten", func() bool { return sw.Stats().ForwardRules == len(flows()) })
	if got := c.stats(); got.Total() != 0 {
		t.Errorf("a flow that may have expired counts as a deviation: %+v", got)
	}
	networktest.Eventually(t, "the rule to be back", func() bool {
		receive(1, 1, 2)
		receive(2, 2, 1)
		return len(flows()) > 0
	})
	e = flows()[0]
	apply(strict(openflow.FlowModifyStrict, e.Priority, 4))
	networktest.Eventually(t, "the wrong rule to be deleted", func() bool {
		return !slices.ContainsFunc(flows(), func(f fake.Entry) bool { return f.Instructions[0].Actions[0].Port() == 4 })
	})
	networktest.Eventually(t, "the change to be counted", func() bool { return c.total("forwarding", "rule").Changed == 1 })
	stranger := strict(openflow.FlowAdd, e.Priority, 3)
	stranger.Match = openflow.MustMatch(openflow.InPort(4), openflow.EthDst(networktest.HostMAC(1)), openflow.EthSrc(networktest.HostMAC(9)), openflow.VLANVID(0))
	stranger.Cookie++
	apply(stranger)
	networktest.Eventually(t, "the unknown rule to be deleted", func() bool {
		return !slices.ContainsFunc(flows(), func(f fake.Entry) bool { return f.Match == stranger.Match })
	})
	networktest.Eventually(t, "the unknown rule to be counted", func() bool { return c.total("forwarding", "rule").Foreign == 1 })
}

// TestTablesConvergeAfterAnyDisturbance makes random changes of what is declared while another
// program changes the switch at random, with and without notices, and checks that the switch has
// what is declared afterwards.
func TestTablesConvergeAfterAnyDisturbance(t *testing.T) {
	c := startCompared(t, compareOften, fake.Options{Tables: 4}, network.OwnerOptions{})
	rapid.Check(t, func(rt *rapid.T) {
		want := map[string]map[uint16]uint32{}
		rt.Repeat(map[string]func(*rapid.T){
			"declare": func(rt *rapid.T) {
				key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
				first := map[string]uint16{"a": 1000, "b": 2000}[key]
				var p network.Program
				rules := map[uint16]uint32{}
				for _, n := range rapid.SliceOfNDistinct(rapid.Uint16Range(0, 4), 0, 4, rapid.ID).Draw(rt, "rules") {
					rules[first+n] = rapid.Uint32Range(1, 3).Draw(rt, "out")
					p.Rules = append(p.Rules, networktest.TCPTo(1, first+n, rules[first+n]))
				}
				networktest.Apply(t, c.o, key, p, network.ApplyOptions{})
				want[key] = rules
			},
			"disturb": func(rt *rapid.T) {
				m := deleteAllRules().(*openflow.FlowMod)
				if all := c.s.Table().Entries(); len(all) > 0 && rapid.Bool().Draw(rt, "one") {
					e := rapid.SampledFrom(all).Draw(rt, "entry")
					command := rapid.SampledFrom([]uint8{openflow.FlowDeleteStrict, openflow.FlowModifyStrict}).Draw(rt, "command")
					m = openflow.NewFlowMod(command, e.Table, e.Priority, e.Match, openflow.ApplyActions(openflow.Output(4)))
				}
				if rapid.Bool().Draw(rt, "notify") {
					if err := c.s.Change(m); err != nil {
						rt.Fatal(err)
					}
				} else if _, e := c.s.Table().Flow(m); e != nil {
					rt.Fatal(e)
				}
			},
		})
		all := map[uint16]uint32{}
		for _, rules := range want {
			maps.Copy(all, rules)
		}
		networktest.Eventually(t, "the switch to have what is declared", func() bool { return maps.Equal(networktest.ServiceRules(c.s), all) })
		for _, key := range []string{"a", "b"} {
			if err := c.o.Remove(t.Context(), key); err != nil {
				rt.Fatal(err)
			}
		}
	})
}
