package trace

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// net is a network made of data.
type net struct {
	rules  map[openflow.DatapathID][]rule.Installed
	groups map[uint32]rule.Group
	links  map[topology.PortRef]topology.PortRef
	hosts  map[topology.PortRef][]string
}

func (n *net) Rules(s openflow.DatapathID) ([]rule.Installed, bool) {
	r, ok := n.rules[s]
	return r, ok
}

func (n *net) Group(_ openflow.DatapathID, id uint32) (rule.Group, bool) {
	g, ok := n.groups[id]
	return g, ok
}

func (n *net) LinkFrom(r topology.PortRef) (topology.Link, bool) {
	to, ok := n.links[r]
	return topology.Link{From: r, To: to}, ok
}

func (n *net) HostsAt(r topology.PortRef) []string { return n.hosts[r] }

func (n *net) Controller() string { return "the controller" }

func ref(s, p int) topology.PortRef {
	return topology.PortRef{Switch: openflow.DatapathID(s), Port: uint32(p)}
}

func (n *net) add(s int, owner, name string, stage rule.Stage, offset uint16, match string, actions ...openflow.Action) *rule.Installed {
	d := openflow.DatapathID(s)
	r := rule.Installed{
		Owner: owner, Name: name, Cookie: rule.MakeCookie(rule.OwnerHash(owner), 1, 1),
		Rule: rule.Rule{Switch: d, Stage: stage, Offset: offset, Actions: actions, Match: matchOf(match)},
	}
	n.rules[d] = append(n.rules[d], r)
	return &n.rules[d][len(n.rules[d])-1]
}

// matchOf returns a match of the fields that a description gives.
func matchOf(words string) openflow.Match {
	if words == "" {
		return openflow.Match{}
	}
	d, err := Parse(words)
	if err != nil {
		panic(err)
	}
	var fields []openflow.OXM
	for f := range d.Said {
		o, _ := d.Packet.Get(f)
		fields = append(fields, o)
	}
	return openflow.MustMatch(fields...)
}

func newNet() *net {
	return &net{
		rules: map[openflow.DatapathID][]rule.Installed{}, groups: map[uint32]rule.Group{},
		links: map[topology.PortRef]topology.PortRef{}, hosts: map[topology.PortRef][]string{},
	}
}

func (n *net) cable(a, b topology.PortRef) { n.links[a], n.links[b] = b, a }

func follow(t *testing.T, n *net, at topology.PortRef, words string) Trace {
	t.Helper()
	d, err := Parse(words)
	if err != nil {
		t.Fatal(err)
	}
	return Run(n, at, d.Packet)
}

// TestTraceFollowsRewrites follows a session of SOS as in table 5.2.1: rule 1 rewrites towards
// the agent, rule 3 forwards without changes.
func TestTraceFollowsRewrites(t *testing.T) {
	n := newNet()
	n.cable(ref(1, 2), ref(2, 1))
	n.hosts[ref(2, 3)] = []string{"02:00:00:00:00:99 (10.0.0.99)"}
	n.add(1, "network", "miss", 0, 0, "", openflow.OutputController(0xffff))
	n.add(1, "forwarding", "a>b", rule.StageRoute, 200, "in_port=1,eth_dst=02:00:00:00:00:0b", openflow.Output(7))
	n.add(1, "sos", "session 7", rule.StageRewrite, 0, "tcp,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=4000,tp_dst=80",
		openflow.SetField(openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, 0x99})), openflow.SetField(openflow.IPDst(addr("10.0.0.99"))),
		openflow.SetField(openflow.TCPDst(9000)), openflow.Output(2))
	n.add(1, "sos", "session 8", rule.StageRewrite, 0, "tcp,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=4001,tp_dst=80", openflow.Output(2))
	n.add(1, "qos", "guard", rule.StageAdmit, 0, "udp,in_port=1")
	n.add(2, "sos", "path", rule.StageRoute, 0, "eth_dst=02:00:00:00:00:99", openflow.Output(3))
	tr := follow(t, n, ref(1, 1), "tcp,eth_dst=02:00:00:00:00:0b,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=4000,tp_dst=80")
	if len(tr.Steps) != 2 {
		t.Fatalf("%d steps:\n%v", len(tr.Steps), tr)
	}
	first, second := tr.Steps[0], tr.Steps[1]
	l := first.Tables[0]
	if l.Rule.Owner != "sos" || l.Rule.Name != "session 7" || l.Rule.Stage != "rewrite" || l.Rule.Priority != rule.StageRewrite.Base() {
		t.Errorf("switch 1 takes %+v", l.Rule)
	}
	if len(l.Passed) != 1 || l.Passed[0].Owner != "qos" || !strings.Contains(l.Passed[0].Want, "17") || !strings.Contains(l.Passed[0].Have, "6") {
		t.Errorf("why not the others: %+v", l.Passed)
	}
	if second.Tables[0].Rule.Name != "path" || second.Parent != 0 || second.InPort != 1 ||
		!strings.Contains(second.Packet, "10.0.0.99") || !strings.Contains(second.Packet, "9000") {
		t.Errorf("switch 2: %+v", second)
	}
	if o := second.Outputs[0]; o.To != "host 02:00:00:00:00:99 (10.0.0.99)" || o.Next != -1 {
		t.Errorf("ends %+v", o)
	}
	text := tr.String()
	for _, want := range []string{"owner sos", `rule "session 7"`, "stage rewrite", "did     set", "on to 2", "host 02:00:00:00:00:99"} {
		if !strings.Contains(text, want) {
			t.Errorf("the printed trace lacks %q:\n%s", want, text)
		}
	}
}

func TestTraceEnds(t *testing.T) {
	group := func(kind openflow.GroupType, ports ...uint32) rule.Group {
		g := rule.Group{ID: 5, Type: kind}
		for _, p := range ports {
			g.Buckets = append(g.Buckets, openflow.Bucket{Actions: []openflow.Action{openflow.Output(p)}})
		}
		return g
	}
	for _, tt := range []struct {
		name string
		make func(n *net)
		want string // steps as switch/in-port, outputs, ends
	}{
		{"no rule", func(n *net) { n.rules[1] = []rule.Installed{} }, "1/1 end=dropped: no rule in table 0 matches"},
		{"switch away", func(*net) {}, "1/1 end=the switch is not connected"},
		{"drop rule", func(n *net) { n.add(1, "x", "x", 1, 0, "") }, "1/1 end=dropped by this rule"},
		{"controller", func(n *net) { n.add(1, "x", "x", 0, 0, "", openflow.OutputController(99)) }, "1/1 CONTROLLER(the controller)"},
		{"in-port", func(n *net) { n.add(1, "x", "x", 1, 0, "", openflow.Output(1)) }, "1/1 1(nowhere: a switch does not send a packet back by a plain output to its in-port)"},
		{"back by IN_PORT", func(n *net) { n.add(1, "x", "x", 1, 0, "", openflow.Output(openflow.PortInPort)) }, "1/1 IN_PORT(an edge port without known hosts)"},
		{"loop", func(n *net) {
			n.cable(ref(1, 2), ref(2, 1))
			n.cable(ref(2, 2), ref(1, 1))
			n.add(1, "x", "x", 1, 0, "", openflow.Output(2))
			n.add(2, "x", "x", 1, 0, "", openflow.Output(2))
		}, "1/1 2>1 | 2/1 2(visited before: a loop)>0"},
		{"two tables", func(n *net) {
			n.add(1, "x", "x", 1, 0, "").Next = 2
			n.add(1, "y", "y", 1, 0, "", openflow.Output(3)).Number = 2
		}, "1/1 3(an edge port without known hosts)"},
		{"no such group", func(n *net) { n.add(1, "x", "x", 1, 0, "", openflow.GroupAction(6)) }, "1/1 end=dropped: there is no group 6"},
		{"all", func(n *net) {
			n.groups[5] = group(openflow.GroupTypeAll, 3, 4)
			n.add(1, "x", "x", 1, 0, "", openflow.GroupAction(5))
		}, "1/1 3(an edge port without known hosts) 4(an edge port without known hosts)"},
		{"select", func(n *net) {
			n.groups[5] = group(openflow.GroupTypeSelect, 3, 4, 3, 4, 4)
			n.add(1, "x", "x", 1, 0, "", openflow.GroupAction(5))
		}, "1/1 3(an edge port without known hosts) 4(an edge port without known hosts)"},
		{"failover", func(n *net) {
			n.groups[5] = group(openflow.GroupTypeFastFailover, 3, 4)
			n.add(1, "x", "x", 1, 0, "", openflow.GroupAction(5))
		}, "1/1 3(an edge port without known hosts)"},
		{"group in itself", func(n *net) {
			n.groups[5] = rule.Group{ID: 5, Buckets: []openflow.Bucket{{Actions: []openflow.Action{openflow.GroupAction(5)}}}}
			n.add(1, "x", "x", 1, 0, "", openflow.GroupAction(5))
		}, "1/1 end=given up: groups nested more than 8 deep"},
		{"TTL runs out", func(n *net) {
			n.add(1, "x", "x", 1, 0, "", openflow.SetNWTTL(1), openflow.DecNWTTL(), openflow.Output(3))
		}, "1/1 end=dropped: the TTL ran out"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNet()
			tt.make(n)
			var steps []string
			for _, s := range follow(t, n, ref(1, 1), "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2").Steps {
				w := fmt.Sprintf("%d/%d", s.Switch, s.InPort)
				for _, o := range s.Outputs {
					w += " " + o.Port
					if o.To != "" {
						w += "(" + o.To + ")"
					}
					if o.Next >= 0 {
						w += fmt.Sprintf(">%d", o.Next)
					}
				}
				if s.End != "" {
					w += " end=" + s.End
				}
				steps = append(steps, w)
			}
			if got := strings.Join(steps, " | "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestTraceOfVLANs(t *testing.T) {
	n := newNet()
	n.cable(ref(1, 2), ref(2, 1))
	n.cable(ref(2, 2), ref(3, 1))
	n.add(1, "x", "tag", 1, 0, "", openflow.PushVLAN(0x8100), openflow.SetField(openflow.VLANVID(10)), openflow.Output(2))
	n.add(2, "x", "translate", 1, 0, "vlan_vid=10", openflow.SetField(openflow.VLANVID(20)), openflow.PushVLAN(0x88a8), openflow.SetField(openflow.VLANVID(99)), openflow.PopVLAN(), openflow.Output(2))
	n.add(3, "x", "untag", 1, 0, "vlan_vid=20", openflow.PopVLAN(), openflow.PopVLAN(), openflow.Output(2))
	tr := follow(t, n, ref(1, 1), "eth_src=02:00:00:00:00:01")
	if len(tr.Steps) != 3 || tr.Steps[2].Tables[0].Rule == nil {
		t.Fatalf("the tags were lost:\n%v", tr)
	}
	did := tr.Steps[2].Tables[0].Did
	if len(did) != 2 || !strings.Contains(did[1], "not done") {
		t.Errorf("popping twice: %q", did)
	}
}

func TestTraceIsBounded(t *testing.T) {
	n := newNet()
	for s := 1; s <= maxSteps+10; s++ {
		n.cable(ref(s, 2), ref(s+1, 1))
		n.add(s, "x", "x", 1, 0, "", openflow.Output(2))
	}
	tr := follow(t, n, ref(1, 1), "ip")
	last := tr.Steps[len(tr.Steps)-1]
	if len(tr.Steps) != maxSteps || !strings.Contains(last.Outputs[0].To, "given up") {
		t.Errorf("%d steps, last %+v", len(tr.Steps), last)
	}
}
