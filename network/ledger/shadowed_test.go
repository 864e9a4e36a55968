package ledger_test

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// to returns a rule for packets to a TCP port.
func to(port uint16, stage rule.Stage, offset uint16) rule.Program {
	return rule.Program{Rules: []rule.Rule{{
		Switch: 1, Stage: stage, Offset: offset, Match: tcpTo(port), Actions: []openflow.Action{openflow.Output(1)},
	}}}
}

func tcpTo(port uint16) openflow.Match {
	return openflow.MustMatch(openflow.EthType(0x800), openflow.IPProto(6), openflow.TCPDst(port))
}

// TestShadowed checks that Shadowed names the owners whose rules come first for the same
// packets, with the number of their rules' names. It must leave out rules that come later, match
// other packets, only admit packets, or are the owner's own.
func TestShadowed(t *testing.T) {
	l := ledger.New(1)
	owners := map[string]*ledger.Owner{}
	declare := func(owner, key string, p rule.Program) *ledger.Owner {
		t.Helper()
		o := owners[owner]
		if o == nil {
			var err error
			if o, err = l.AddOwner(owner, false); err != nil {
				t.Fatal(err)
			}
			owners[owner] = o
		}
		if _, err := l.Plan(o, key, p); err != nil {
			t.Fatal(err)
		}
		return o
	}
	mine := declare("mine", "class", to(80, rule.StageWay, rule.WayClass))
	declare("mine", "other", to(80, rule.StageWay, rule.WayClass+100))
	declare("sos", "session/2", to(80, rule.StageRewrite, 0))
	declare("sos", "session/1", to(80, rule.StageRewrite, 1))
	declare("sos", "punt/1", to(80, rule.StageSelect, rule.SelectConnection))
	declare("sos", "session/3", to(81, rule.StageRewrite, 0))
	declare("handover", "device", to(82, rule.StageDevice, rule.DeviceUp))
	declare("handover", "guard", to(80, rule.StageGuard, rule.GuardSource))
	declare("handover", "dhcp", to(80, rule.StageAdmit, rule.AdmitDHCP))
	declare("critical", "flow", to(80, rule.StageWay, rule.WayCriticalFlow))
	got := l.Shadowed(mine, rule.StageWay, rule.WayClass, [][]openflow.Match{{tcpTo(80)}, {tcpTo(82), tcpTo(83)}, {tcpTo(99)}, nil})
	if s := fmt.Sprint(got); s != "[[sos comes first for packets that both are for (rules punt/1 and 2 more)] [handover comes first for packets that both are for (rules device)] [] []]" {
		t.Error(s)
	}
}

// TestShadowedByRewriting checks that an owner one of whose rules changes headers is reported
// as rewriting, whichever of its rules is compared first.
func TestShadowedByRewriting(t *testing.T) {
	l := ledger.New(1)
	mine, err := l.AddOwner("mine", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"agents", "device"} {
		o, err := l.AddOwner(name, false)
		if err != nil {
			t.Fatal(err)
		}
		p := to(80, rule.StageRewrite, 0)
		p.Rules = append(p.Rules, to(80, rule.StageRewrite, 1).Rules...)
		if name == "agents" {
			p.Rules[1].Actions = []openflow.Action{openflow.SetField(openflow.TCPDst(9)), openflow.Output(1)}
		} else {
			for i := range p.Rules {
				p.Rules[i].Stage, p.Rules[i].Offset = rule.StageDevice, rule.DeviceUp+uint16(i)
			}
		}
		if _, err := l.Plan(o, "x", p); err != nil {
			t.Fatal(err)
		}
	}
	got := l.Shadowed(mine, rule.StageWay, rule.WayClass, [][]openflow.Match{{tcpTo(80)}})[0]
	if len(got) != 2 || !got[0].Rewrites || got[1].Rewrites {
		t.Errorf("Shadowed = %+v, want agents that rewrite and a device that does not", got)
	}
}

// BenchmarkShadowed measures one call with very many rules; its time is bounded.
func BenchmarkShadowed(b *testing.B) {
	l := ledger.New(1)
	mine, _ := l.AddOwner("mine", false)
	sos, err := l.AddOwner("sos", false)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 50_000 {
		p := to(uint16(i), rule.StageRewrite, 0)
		if _, err := l.Plan(sos, fmt.Sprint(i), p); err != nil {
			b.Fatal(err)
		}
	}
	of := make([][]openflow.Match, 100)
	for i := range of {
		of[i] = []openflow.Match{tcpTo(uint16(60_000 + i))}
	}
	for b.Loop() {
		l.Shadowed(mine, rule.StageWay, rule.WayClass, of)
	}
}
