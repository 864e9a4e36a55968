package critical

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

// roam has host 1 of switch 4 move, behind the border at switch 1, by a way of switches.
func (w *world) roam(switches ...int) {
	a := network.Anchor{MAC: mac(4, 1), Borders: []network.PortRef{hostAt(1, 9)}}
	in := hostAt(1, 9).Port
	for i, sw := range switches {
		hop := network.Hop{Switch: openflow.DatapathID(sw), In: in, Out: 1}
		if i+1 < len(switches) {
			hop.Out, in = port(sw, switches[i+1]).Port, port(switches[i+1], sw).Port
		}
		a.Path = append(a.Path, hop)
	}
	last := switches[len(switches)-1]
	a.Place = network.Pin{MAC: mac(last, 1), At: hostAt(last, 1)}
	w.net.change(func() {
		w.net.anchors = map[netip.Addr]network.Anchor{addr(4, 1): a}
		w.net.moving = network.Moving{Prefixes: []netip.Prefix{netip.PrefixFrom(addr(4, 0), 24)}, Borders: a.Borders}
	})
	w.review(w.t.Context())
}

// A flow to a host that moves is promised its rate at each place where there is room, and
// says of each other what is missing. Its rules are those of the border.
func TestFlowToAHostThatMoves(t *testing.T) {
	w := newWorld(t)
	w.roam(1, 2, 4)
	r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	if r.State != StateAccepted || through(r) != "124" || w.Book.Promised(port(2, 4)) != 10*mbit {
		t.Fatalf("%+v", r)
	}
	flow := func() Record { return w.of([2]int{1, 1}, [2]int{4, 1}, 1) }
	w.net.change(func() { w.net.narrow = map[[2]int]uint64{{3, 5}: 8 * mbit} })
	w.roam(1, 3, 5)
	r = flow()
	if r.State != StateBestEffort || through(r) != "135" || !strings.Contains(r.Reason, "from 0000000000000003/35: 10000000 bit/s asked, 8000000 of 8000000") {
		t.Errorf("where there is no room: %+v", r)
	}
	if w.Book.Promised(port(1, 2)) != 0 || w.Book.Promised(port(2, 4)) != 0 {
		t.Errorf("promised where it is no more: %+v", w.Book.Promises())
	}
	for _, x := range w.rules.Program("flow/" + r.ID).Rules {
		if x.Switch != 1 || x.Stage != network.StageSelect || x.Goto != rule.TableRoute {
			t.Errorf("a rule that leads it elsewhere: %+v", x)
		}
	}
	w.roam(1, 2)
	if r = flow(); r.State != StateAccepted || through(r) != "12" || r.Reason != "" || r.Moves != 2 {
		t.Errorf("where there is room again: %+v", r)
	}
	w.net.change(func() { w.net.anchors = nil })
	w.review(t.Context())
	w.eventually("the flow of a host that has left is over", func() bool { return flow().State == "none" })
}

// Away from its border a flow of a host that moves is one like others.
func TestFlowAwayFromItsBorder(t *testing.T) {
	w := newWorld(t)
	w.roam(1, 2, 4)
	if r := w.placed([2]int{2, 1}, [2]int{4, 1}, 1); r.State != StateAccepted || through(r) != "24" {
		t.Errorf("%+v", r)
	}
	for _, x := range w.rules.Program("flow/" + w.of([2]int{2, 1}, [2]int{4, 1}, 1).ID).Rules {
		if x.Stage != network.StageWay {
			t.Errorf("%+v", x)
		}
	}
}

// At borders the first packets come up of critical traffic of those that may move, and of
// no other.
func TestAskedAtBorders(t *testing.T) {
	devices := network.Moving{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/24")}, Borders: []network.PortRef{hostAt(1, 9)}}
	for text, want := range map[match.Flow]int{
		{TCPDst: "5001"}:                             2,
		{IPv4Dst: "10.8.0.7", TCPDst: "5001"}:        2,
		{IPv4Dst: "10.0.0.0/8"}:                      2,
		{IPv4Src: "192.0.2.1", IPv4Dst: "192.0.2.2"}: 0,
		{IPv4Src: "192.0.2.1", IPv4Dst: "10.8.0.7"}:  1,
		{EthType: "ipv6"}:                            0,
	} {
		matches, faults := text.Parse()
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		rules := borderPunts(1, []*Definition{{Matches: matches}}, devices)
		if len(rules) != want {
			t.Errorf("%+v: %d rules, want %d: %v", text, len(rules), want, rules)
		}
		for _, r := range rules {
			src, _ := narrow(r.Match, openflow.IPSrcPrefix(devices.Prefixes[0]))
			dst, _ := narrow(r.Match, openflow.IPDstPrefix(devices.Prefixes[0]))
			if src != r.Match && dst != r.Match {
				t.Errorf("%+v: %v is for others too", text, r.Match)
			}
		}
		if elsewhere := borderPunts(2, []*Definition{{Matches: matches}}, devices); len(elsewhere) > 0 {
			t.Errorf("away from the border: %v", elsewhere)
		}
	}
}
