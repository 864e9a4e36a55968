package network_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/trace"
	"github.com/sluice-net/sluice/openflow"
)

// TestTraceNamesOwners checks which rule handles which packet on a switch with rules of a service,
// of default forwarding, of the core and of another controller.
func TestTraceNamesOwners(t *testing.T) {
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 4)
	for _, i := range []int{1, 2, 1} { // the second and third go to a known host and get rules
		if _, err := s.Receive(uint32(i), networktest.Frame(i, 3-i)); err != nil {
			t.Fatal(err)
		}
		networktest.Eventually(t, "the sender to be known", func() bool { _, ok := n.HostByMAC(networktest.HostMAC(i), 0); return ok })
	}
	networktest.Eventually(t, "rules of default forwarding and of the tree", func() bool {
		sw, ok := n.Switch(1)
		if !ok {
			return false
		}
		rules := sw.Rules()
		forwarding := slices.ContainsFunc(rules, func(r network.InstalledRule) bool { return r.Owner == "forwarding" })
		return forwarding && slices.ContainsFunc(rules, func(r network.InstalledRule) bool { return r.Stage == rule.StageRoute && r.Offset == rule.RouteAsk })
	})
	group := o.GroupID(1)
	p := networktest.Program(networktest.TCPTo(1, 80, 3))
	p.Rules[0].Actions = []openflow.Action{openflow.GroupAction(group)}
	p.Groups = []network.Group{{Switch: 1, ID: group, Buckets: []openflow.Bucket{
		{Actions: []openflow.Action{openflow.Output(3)}}, {Actions: []openflow.Action{openflow.Output(4)}},
	}}}
	networktest.Apply(t, o, "web", p, network.ApplyOptions{})
	stranger := &openflow.FlowMod{
		Priority: 65535, Cookie: 42, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny, BufferID: openflow.NoBuffer,
		Match: openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(17)),
	}
	if _, err := s.Table().Flow(stranger); err != nil {
		t.Fatal(err)
	}
	from := fmt.Sprintf("eth_src=%v,eth_dst=%v,", networktest.HostMAC(1), networktest.HostMAC(2))
	for _, tt := range []struct{ packet, owner, name, out string }{
		{"tcp,dport=80," + from, "svc", "web", "port 3, group"},
		{"tcp,dport=81," + from, "forwarding", fmt.Sprintf("%v>%v", networktest.HostMAC(1), networktest.HostMAC(2)), "port 2: host " + networktest.HostMAC(2).String()},
		{"switch=0000000000000001,in_port=4,tcp,dport=81," + from, "network", "ask/0000000000000001", "asked in turn: discovery, hosts, forwarding"},
		{"udp," + from, "", "", "dropped by this rule"},
	} {
		d, err := trace.Parse(tt.packet)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := n.Trace(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		r := tr.Steps[0].Tables[0].Rule
		if r == nil || r.Owner != tt.owner || r.Name != tt.name || !strings.Contains(tr.String(), tt.out) {
			t.Errorf("%s: taken by %+v, want owner %q name %q and %q in\n%v", tt.packet, r, tt.owner, tt.name, tt.out, tr)
		}
	}
	for _, tt := range []struct {
		packet string
		want   error
	}{
		{"tcp,nw_src=192.0.2.1", network.ErrUnknownHost},
		{"switch=0000000000000009,in_port=1,tcp", network.ErrSwitchDown},
		{"switch=0000000000000009," + from + "tcp", network.ErrUnknownHost},
	} {
		d, err := trace.Parse(tt.packet)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Trace(t.Context(), d); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.packet, err, tt.want)
		}
	}
}
