package network_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// isLed reports whether each of some switches has a rule for a host.
func isLed(n *network.Network, host int, switches ...openflow.DatapathID) bool {
	for _, d := range switches {
		sw, up := n.Switch(d)
		if !up || !slices.ContainsFunc(sw.Rules(), func(r network.InstalledRule) bool {
			return r.Owner == "multipath" && r.Confirmed && isTo(r.Match, host)
		}) {
			return false
		}
	}
	return true
}

// isTo reports whether a match is for packets to a host.
func isTo(m openflow.Match, host int) bool {
	o, some := m.Get(openflow.FieldEthDst)
	return some && openflow.MAC(o.Value[:6]) == networktest.HostMAC(host)
}

// comes makes a host announce itself at port 3 of a switch.
func comes(t *testing.T, n *network.Network, at *fake.Switch, host int) {
	t.Helper()
	arp := packet.AppendARPRequest(nil, networktest.HostMAC(host), networktest.HostAddr(host).Addr(), networktest.HostAddr(9).Addr(), 0)
	networktest.Eventually(t, "the host to be known", func() bool {
		if _, err := at.Receive(3, arp); err != nil {
			t.Fatal(err)
		}
		_, is := n.HostByIP(networktest.HostAddr(host).Addr())
		return is
	})
}

// TestProactiveSlowSwitch checks that a switch which confirms nothing does not keep the others
// from getting their rules.
func TestProactiveSlowSwitch(t *testing.T) {
	t.Parallel()
	var withhold atomic.Bool
	n, _ := networktest.Start(t, network.Config{Proactive: true, RequestTimeout: 3 * time.Second})
	s := ring(t, n, fake.Options{Instead: func(_ uint32, m openflow.Message) ([]byte, bool) {
		return nil, withhold.Load() && m.MsgType() == openflow.TypeBarrierRequest
	}})
	networktest.Eventually(t, "all links", func() bool { return len(n.Topology().Links) == 8 })
	comes(t, n, s[2], 1)
	networktest.Eventually(t, "all to have rules for the first host", func() bool { return isLed(n, 1, 1, 2, 3, 4) })
	networktest.Eventually(t, "that to be told", func() bool { return n.HostStats().Destinations == 1 })
	withhold.Store(true)
	comes(t, n, s[3], 2)
	networktest.Eventually(t, "all others to have rules for the second", func() bool { return isLed(n, 2, 1, 2, 3) })
	networktest.Eventually(t, "nothing to be told while one has none", func() bool { return n.HostStats().Destinations == 0 })
	withhold.Store(false)
	networktest.Eventually(t, "both to be told", func() bool { return n.HostStats().Destinations == 2 })
}

// TestProactiveRefusedRule checks that a switch which refuses the rules for one host gets those
// for all others, and that the other switches get all rules.
func TestProactiveRefusedRule(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{Proactive: true})
	s := ring(t, n, fake.Options{Refuse: func(m openflow.Message) *openflow.Error {
		if f, is := m.(*openflow.FlowMod); is && f.Command == openflow.FlowAdd && isTo(f.Match, 1) {
			return &openflow.Error{Code: openflow.FlowModBadTable}
		}
		return nil
	}})
	networktest.Eventually(t, "all links", func() bool { return len(n.Topology().Links) == 8 })
	comes(t, n, s[2], 1)
	comes(t, n, s[3], 2)
	networktest.Eventually(t, "rules but the refused one", func() bool { return isLed(n, 1, 1, 2, 3) && isLed(n, 2, 1, 2, 3, 4) })
	comes(t, n, s[2], 3)
	networktest.Eventually(t, "rules of a host that comes later", func() bool { return isLed(n, 3, 1, 2, 3, 4) })
	if isLed(n, 1, 4) {
		t.Error("the switch has a rule that it refuses")
	}
}

// outOfGroups is the error code OFPGMFC_OUT_OF_GROUPS.
const outOfGroups openflow.ErrorCode = 0x0006_0003

// TestProactiveWithoutGroups checks that of two switches with two links between them, the one
// without groups uses one link and the other one both.
func TestProactiveWithoutGroups(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{Proactive: true})
	s := wire(t, n, 2, map[end]end{{1, 1}: {2, 1}, {1, 2}: {2, 2}}, fake.Options{Refuse: func(m openflow.Message) *openflow.Error {
		if g, is := m.(*openflow.GroupMod); is && g.Command == openflow.GroupAdd {
			return &openflow.Error{Code: outOfGroups}
		}
		return nil
	}})
	networktest.Eventually(t, "all links", func() bool { return len(n.Topology().Links) == 4 })
	comes(t, n, s[1], 1)
	comes(t, n, s[2], 2)
	out := func(at int, to int) openflow.ActionType {
		sw, _ := n.Switch(openflow.DatapathID(at))
		for _, r := range sw.Rules() {
			if r.Owner == "multipath" && r.Confirmed && isTo(r.Match, to) {
				return r.Actions[0].Type
			}
		}
		return 0xffff
	}
	networktest.Eventually(t, "rules that lead to a group and to a port", func() bool {
		return out(1, 2) == openflow.ActionGroup && out(2, 1) == openflow.ActionOutput
	})
	if s[2].Count(openflow.TypeGroupMod) > 2 {
		t.Errorf("the switch was sent %d groups", s[2].Count(openflow.TypeGroupMod))
	}
}

// TestProactiveForgetsHosts checks that no switch has rules for a host whose port is down.
func TestProactiveForgetsHosts(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{Proactive: true})
	s := ring(t, n, fake.Options{})
	networktest.Eventually(t, "all links", func() bool { return len(n.Topology().Links) == 8 })
	comes(t, n, s[2], 1)
	comes(t, n, s[3], 2)
	networktest.Eventually(t, "rules", func() bool { return isLed(n, 1, 1, 2, 3, 4) && isLed(n, 2, 1, 2, 3, 4) })
	if err := s[2].SetPort(3, false); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "nobody to have rules to the host that is gone", func() bool {
		for d := openflow.DatapathID(1); d <= 4; d++ {
			if isLed(n, 1, d) {
				return false
			}
		}
		return true
	})
	if !isLed(n, 2, 1, 2, 3, 4) {
		t.Error("the other host has lost rules")
	}
}
