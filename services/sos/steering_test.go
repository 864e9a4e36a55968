package sos

import (
	"testing"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

func pairXY(paths ...[]network.Hop) Steering {
	return Steering{
		X:     Terminal{Addr: agentX.Addr(), MAC: macX, DataPorts: []uint16{7001, 7002}},
		Y:     Terminal{Addr: agentY.Addr(), MAC: macY, DataPorts: []uint16{8001, 8002}},
		Paths: paths,
	}
}

func between(in uint32, from, to Terminal, more ...openflow.OXM) openflow.Match {
	return openflow.MustMatch(append([]openflow.OXM{
		openflow.InPort(in), openflow.EthType(0x0800), openflow.IPProto(6), openflow.IPSrc(from.Addr), openflow.IPDst(to.Addr),
	}, more...)...)
}

func steering(dpid openflow.DatapathID, m openflow.Match, actions ...openflow.Action) network.Rule {
	return network.Rule{Switch: dpid, Stage: network.StageRoute, Match: m, Actions: actions}
}

// TestOnePathIsUnmodified compares the rules with rules 3 to 6 of table 5.2.1.
func TestOnePathIsUnmodified(t *testing.T) {
	s := pairXY([]network.Hop{hop(1, portX, wan), hop(2, wan, portY)})
	rules, err := s.Rules(everything)
	if err != nil {
		t.Fatal(err)
	}
	sameRules(t, "pair", rules, []network.Rule{
		steering(2, between(wan, s.X, s.Y), openflow.Output(portY)),
		steering(1, between(portX, s.X, s.Y), openflow.Output(wan)),
		steering(1, between(wan, s.Y, s.X), openflow.Output(portX)),
		steering(2, between(portY, s.Y, s.X), openflow.Output(wan)),
	})
}

func TestIslandsNeedNoSteering(t *testing.T) {
	rules, err := pairXY().Rules(everything)
	if err != nil || len(rules) != 0 {
		t.Errorf("%v, %v; want nothing", rules, err)
	}
}

func TestOnePathAcrossVLANs(t *testing.T) {
	s := pairXY([]network.Hop{hop(1, portX, wan), hop(2, wan, portY)})
	s.Y.VLAN = 20
	rules, err := s.Rules(everything)
	if err != nil {
		t.Fatal(err)
	}
	sameRules(t, "pair", rules, []network.Rule{
		steering(2, between(wan, s.X, s.Y), openflow.PushVLAN(0x8100), set(openflow.VLANVID(20)), openflow.Output(portY)),
		steering(1, between(portX, s.X, s.Y), openflow.Output(wan)),
		steering(1, between(wan, s.Y, s.X, openflow.AnyVLAN()), openflow.PopVLAN(), openflow.Output(portX)),
		steering(2, between(portY, s.Y, s.X, openflow.VLANVID(20)), openflow.Output(wan)),
	})
}

// TestVLANTranslatedOnTheWay tests a packet whose VLAN a network between the switches may have
// changed.
func TestVLANTranslatedOnTheWay(t *testing.T) {
	s := pairXY([]network.Hop{hop(1, portX, wan), hop(2, wan, portY)})
	s.X.VLAN, s.Y.VLAN = 10, 20
	rules, err := s.Rules(everything)
	if err != nil {
		t.Fatal(err)
	}
	sameRules(t, "pair", rules, []network.Rule{
		steering(2, between(wan, s.X, s.Y, openflow.AnyVLAN()), set(openflow.VLANVID(20)), openflow.Output(portY)),
		steering(1, between(portX, s.X, s.Y, openflow.VLANVID(10)), openflow.Output(wan)),
		steering(1, between(wan, s.Y, s.X, openflow.AnyVLAN()), set(openflow.VLANVID(10)), openflow.Output(portX)),
		steering(2, between(portY, s.Y, s.X, openflow.VLANVID(20)), openflow.Output(wan)),
	})
}

func TestPathTags(t *testing.T) {
	one := []network.Hop{hop(1, portX, 3), hop(7, 1, 2), hop(2, 3, portY)}
	two := []network.Hop{hop(1, portX, 4), hop(8, 1, 2), hop(2, 4, portY)}
	s := pairXY(one, two)
	rules, err := s.Rules(everything)
	if err != nil {
		t.Fatal(err)
	}
	var want []network.Rule
	for k, p := range [][]network.Hop{one, two} {
		core, wanPort := p[1].Switch, p[0].Out
		there, back := pathTag(s.X.Addr, s.Y.Addr, p, 0), pathTag(s.Y.Addr, s.X.Addr, kit.Reversed(p), 0)
		for _, tag := range []openflow.MAC{there, back} {
			if tag[0]&3 != 2 {
				t.Errorf("tag %v is not a locally administered unicast address", tag)
			}
		}
		want = append(want,
			steering(2, openflow.MustMatch(openflow.EthDst(there)), set(openflow.EthDst(macY)), openflow.Output(portY)),
			steering(core, openflow.MustMatch(openflow.EthDst(there)), openflow.Output(2)),
			steering(1, between(portX, s.X, s.Y, openflow.TCPDst(s.Y.DataPorts[k])), set(openflow.EthDst(there)), openflow.Output(wanPort)),
			steering(1, between(portX, s.X, s.Y, openflow.TCPSrc(s.X.DataPorts[k])), set(openflow.EthDst(there)), openflow.Output(wanPort)),
			steering(1, openflow.MustMatch(openflow.EthDst(back)), set(openflow.EthDst(macX)), openflow.Output(portX)),
			steering(core, openflow.MustMatch(openflow.EthDst(back)), openflow.Output(1)),
			steering(2, between(portY, s.Y, s.X, openflow.TCPDst(s.X.DataPorts[k])), set(openflow.EthDst(back)), openflow.Output(wanPort)),
			steering(2, between(portY, s.Y, s.X, openflow.TCPSrc(s.Y.DataPorts[k])), set(openflow.EthDst(back)), openflow.Output(wanPort)),
		)
	}
	sameRules(t, "tags", rules, want)
	if err := checkDisjoint(rules); err != nil {
		t.Error(err)
	}
}

func TestTagsFollowThePath(t *testing.T) {
	p := []network.Hop{hop(1, portX, 3), hop(2, 3, portY)}
	q := []network.Hop{hop(1, portX, 4), hop(2, 4, portY)}
	tag := pathTag(agentX.Addr(), agentY.Addr(), p, 0)
	if tag != pathTag(agentX.Addr(), agentY.Addr(), p, 0) {
		t.Error("the same path got another tag")
	}
	for name, other := range map[string]openflow.MAC{
		"other path": pathTag(agentX.Addr(), agentY.Addr(), q, 0),
		"way back":   pathTag(agentY.Addr(), agentX.Addr(), kit.Reversed(p), 0),
		"salted":     pathTag(agentX.Addr(), agentY.Addr(), p, 1),
	} {
		if other == tag {
			t.Errorf("%s: the same tag", name)
		}
	}
}

func TestSwitchesThatCannotTagGetOnePath(t *testing.T) {
	s := pairXY([]network.Hop{hop(1, portX, 3), hop(2, 3, portY)}, []network.Hop{hop(1, portX, 4), hop(2, 4, portY)})
	rules, err := s.Rules(func(openflow.DatapathID, openflow.Field) bool { return false })
	if err != nil || len(rules) != 4 {
		t.Errorf("%d rules, %v; want the 4 of one path", len(rules), err)
	}
}
