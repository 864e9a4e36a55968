package network_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// rich are rules of every form that services write.
func rich(o *network.Owner, d openflow.DatapathID) network.Program {
	tcp := func(more ...openflow.OXM) openflow.Match {
		return openflow.MustMatch(append(more, openflow.EthType(0x0800), openflow.IPProto(6))...)
	}
	mac := openflow.MAC{2, 0, 0, 0, 0, 9}
	group := o.GroupID(1)
	rules := []network.Rule{
		{Match: tcp(openflow.TCPFlags(2, 0x12), openflow.TCPDst(80)), Actions: []openflow.Action{openflow.OutputController(0xffff)}},
		{Match: tcp(openflow.InPort(1), openflow.TCPDst(81), openflow.TCPSrc(4000)), Actions: []openflow.Action{
			openflow.SetField(openflow.EthDst(mac)), openflow.SetField(openflow.TCPDst(9)), openflow.Output(2),
		}},
		{Match: tcp(openflow.TCPDst(82)), Actions: []openflow.Action{openflow.GroupAction(group)}},
		{Match: tcp(openflow.TCPDst(83))}, // drop
		{Match: tcp(openflow.TCPDst(87)), Actions: []openflow.Action{openflow.Output(1), openflow.GroupAction(o.GroupID(2))}},
		{Match: openflow.MustMatch(openflow.VLANVID(7)), Actions: []openflow.Action{openflow.PopVLAN(), openflow.Output(1)}},
		{Match: openflow.MustMatch(openflow.EthType(0x86dd), openflow.IPProto(6), openflow.TCPDst(84)), Goto: rule.TableRoute},
		{Match: tcp(openflow.TCPDst(85)), Actions: []openflow.Action{openflow.Output(openflow.PortInPort)}, Idle: 600 * time.Second, NotifyRemoved: true},
		{Match: tcp(openflow.TCPDst(86)), Meter: 5, Actions: []openflow.Action{
			openflow.PushVLAN(0x8100), openflow.SetField(openflow.VLANVID(8)), openflow.Output(2),
		}},
		{Stage: network.StageWay, Match: openflow.MustMatch(openflow.EthType(0x86dd)), Actions: []openflow.Action{openflow.DecNWTTL(), openflow.Output(1)}},
	}
	for i := range rules {
		rules[i].Switch, rules[i].Stage, rules[i].Offset = d, cmp.Or(rules[i].Stage, network.StageRewrite), uint16(i)
	}
	return network.Program{
		Rules:  rules,
		Meters: []network.Meter{{Switch: d, ID: 5, Flags: openflow.MeterFlagKbps, Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: 1000}}}},
		Groups: []network.Group{{
			Switch: d, ID: group, Type: openflow.GroupTypeSelect,
			Buckets: []openflow.Bucket{
				{Weight: 1, WatchPort: openflow.PortAny, WatchGroup: openflow.GroupAny, Actions: []openflow.Action{openflow.Output(1)}},
				{Weight: 2, WatchPort: openflow.PortAny, WatchGroup: openflow.GroupAny, Actions: []openflow.Action{openflow.Output(2)}},
			},
		}, {
			Switch: d, ID: o.GroupID(2), Type: openflow.GroupTypeAll,
			Buckets: []openflow.Bucket{
				openflow.NewBucket(openflow.SetField(openflow.EthDst(mac)), openflow.SetField(openflow.IPDst(networktest.HostAddr(1).Addr())), openflow.SetField(openflow.TCPDst(6001)), openflow.Output(1)),
				openflow.NewBucket(openflow.SetField(openflow.EthDst(mac)), openflow.SetField(openflow.IPDst(networktest.HostAddr(2).Addr())), openflow.SetField(openflow.TCPDst(6002)), openflow.Output(2)),
			},
		}},
	}
}

// Open vSwitch gives rules back in its own words. They must still be recognised:
// a restart of the controller sends nothing for rules that are declared again.
func TestRestartOverOpenVSwitchSendsNothing(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netagain", 2, delayline.Params{}))
	var o *network.Owner
	register := func(n *network.Network) {
		var err error
		if o, err = n.Owner("svc", network.OwnerOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n, stop := run(t, l, restarting(1), register)
	ready(t, n, 2, 1, 2)
	ping(t, l, "h1", "h2")
	for d := range openflow.DatapathID(2) {
		networktest.Eventually(t, "the core's rules", func() bool {
			s, ok := n.Switch(d + 1)
			return ok && slices.ContainsFunc(s.Rules(), func(r network.InstalledRule) bool { return strings.HasPrefix(r.Name, "base/") && r.Confirmed })
		})
	}
	for name, opts := range map[string]network.ApplyOptions{"atomic": {Atomic: true}, "ordered": {Ordered: true}, "plain": {}} {
		networktest.Apply(t, o, "rich", rich(o, 1), opts)
		if err := o.Remove(t.Context(), "rich"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if dump := flows(t, l, "s1"); strings.Contains(dump, "tp_dst") {
			t.Fatalf("%s: rules are left:\n%s", name, dump)
		}
	}
	networktest.Apply(t, o, "rich", rich(o, 1), network.ApplyOptions{Atomic: true})
	stop()

	n, _ = run(t, l, restarting(2), register)
	networktest.Apply(t, o, "rich", rich(o, 1), network.ApplyOptions{AllowDown: true})
	ready(t, n, 2, 1, 2)
	o.Ready()
	networktest.Eventually(t, "the broadcast tree", func() bool { return n.Topology().OnTree(network.PortRef{Switch: 1, Port: trunk(t, l)}) })
	ping(t, l, "h1", "h2")
	for _, s := range n.Switches() {
		if got := s.Stats(); got.FlowMods != 0 {
			t.Errorf("switch %v was sent %d flow-mods, want none:\n%s", s.DPID(), got.FlowMods, flows(t, l, "s1"))
		}
	}
	if err := o.Remove(t.Context(), "rich"); err != nil {
		t.Fatal(err)
	}
	if dump := flows(t, l, "s1"); strings.Contains(dump, "tp_dst") {
		t.Errorf("rules of before the restart are left:\n%s", dump)
	}
}

func TestOpenVSwitchRefusalIsExplained(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netrefuse", 1, delayline.Params{}))
	var o *network.Owner
	n, _ := run(t, l, network.Config{}, func(n *network.Network) {
		var err error
		if o, err = n.Owner("svc", network.OwnerOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	ready(t, n, 1, 0, 1)
	if sw, _ := n.Switch(1); !sw.Capabilities().Bundles || !sw.Capabilities().CanSet(openflow.FieldTCPDst) || !sw.Capabilities().CanMatch(openflow.FieldTCPFlags) {
		t.Errorf("capabilities of Open vSwitch are %+v", sw.Capabilities())
	}
	good, bad := networktest.TCPTo(1, 80, 1), networktest.TCPTo(1, 81, 1)
	bad.Actions = []openflow.Action{openflow.GroupAction(o.GroupID(99))}
	for _, opts := range []network.ApplyOptions{{}, {Atomic: true}} {
		err := o.Apply(t.Context(), "k", networktest.Program(good, bad), opts)
		var re *network.RuleError
		if !errors.Is(err, network.ErrRefused) || !errors.As(err, &re) || re.Rule == nil || re.Rule.Match != bad.Match {
			t.Errorf("atomic %v: error does not name the refused rule: %v", opts.Atomic, err)
		}
		if dump := flows(t, l, "s1"); strings.Contains(dump, "tp_dst") {
			t.Errorf("atomic %v: something is left:\n%s", opts.Atomic, dump)
		}
	}
}

// restarting is patient with links, so that none goes down on a busy machine:
// that would rightly change the broadcast tree.
func restarting(generation uint16) network.Config {
	return network.Config{Generation: generation, DiscoveryInterval: 500 * time.Millisecond, DiscoverySettle: 500 * time.Millisecond, DiscoveryTimeout: 5 * time.Second}
}

// trunk is the port of switch 1 that leads to switch 2.
func trunk(t *testing.T, l *lab.Lab) uint32 {
	t.Helper()
	p, err := l.Switch("s1").Port("s1-s2")
	if err != nil {
		t.Fatal(err)
	}
	return uint32(p)
}

func flows(t *testing.T, l *lab.Lab, name string) string {
	t.Helper()
	out, err := l.Switch(name).Ofctl(t.Context(), "dump-flows")
	if err != nil {
		t.Fatal(err)
	}
	return out
}
