package network_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// everywhere returns a program that sends TCP port 80 out of a port on every switch.
func everywhere(out uint32) func(openflow.DatapathID) network.Program {
	return func(d openflow.DatapathID) network.Program { return networktest.Program(networktest.TCPTo(d, 80, out)) }
}

func TestEverySwitch(t *testing.T) {
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	refusing := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4, Refuse: func(m openflow.Message) *openflow.Error {
		if f, ok := m.(*openflow.FlowMod); ok && f.Match == networktest.TCPTo(1, 80, 1).Match {
			return &openflow.Error{Code: openflow.FlowModTableFull}
		}
		return nil
	}})
	early, late := fake.NewSwitch(fake.Options{DPID: 2, Ports: 4}), fake.NewSwitch(fake.Options{DPID: 3, Ports: 4})
	networktest.Connect(t, n, refusing, 1)
	networktest.Connect(t, n, early, 2)
	refused := o.EverySwitch(t.Context(), "k", everywhere(1))
	if len(refused) != 1 || !errors.Is(refused[1], network.ErrRefused) {
		t.Errorf("refused by %v, want by switch 1 alone", refused)
	}
	networktest.WantRules(t, early, map[uint16]uint32{80: 1})
	cut := networktest.Connect(t, n, late, 3)
	networktest.WantRules(t, late, map[uint16]uint32{80: 1})

	o.EverySwitch(t.Context(), "k", everywhere(2))
	networktest.WantRules(t, early, map[uint16]uint32{80: 2})
	networktest.WantRules(t, late, map[uint16]uint32{80: 2})
	cut()
	networktest.Down(t, n, 3)
	networktest.Eventually(t, "the switch that left to be forgotten", func() bool {
		return !slices.Contains(o.Keys(), "k/"+openflow.DatapathID(3).String())
	})
	networktest.Connect(t, n, late, 3)
	networktest.WantRules(t, late, map[uint16]uint32{80: 2})
}

// TestEverySwitchOverARestart checks that the rules of a declaration for every switch remain
// untouched when the controller restarts, whether switches connect before the owner declares it or
// after, and that rules that are not declared again are deleted.
func TestEverySwitchOverARestart(t *testing.T) {
	for name, early := range map[string]bool{"declared before they connect": true, "declared after they have connected": false} {
		t.Run(name, func(t *testing.T) {
			s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
			var o *network.Owner
			register := func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) }
			n, stop := networktest.Start(t, network.Config{Generation: 1, DisableForwarding: true}, register)
			o.EverySwitch(t.Context(), "k", func(d openflow.DatapathID) network.Program {
				return network.Program{
					Rules:  []network.Rule{networktest.TCPTo(d, 80, 1)},
					Groups: []network.Group{{Switch: d, ID: o.GroupID(1), Type: openflow.GroupTypeAll, Buckets: []openflow.Bucket{openflow.NewBucket(openflow.Output(2))}}},
				}
			})
			o.EverySwitch(t.Context(), "given up", func(d openflow.DatapathID) network.Program { return networktest.Program(networktest.TCPTo(d, 81, 1)) })
			cut := networktest.Connect(t, n, s, 1)
			networktest.WantRules(t, s, map[uint16]uint32{80: 1, 81: 1})
			before := table(s)
			stop()
			cut()

			n, _ = networktest.Start(t, network.Config{Generation: 2, DisableForwarding: true}, register)
			declare := func() {
				o.EverySwitch(t.Context(), "k", everywhere(1))
				o.Ready()
			}
			sent := s.FlowMods()
			if early {
				declare()
			}
			networktest.Connect(t, n, s, 1)
			if !early {
				declare()
			}
			networktest.Eventually(t, "what is not declared to be gone", func() bool { return len(networktest.ServiceRules(s)) == 1 && len(s.Table().Groups()) == 0 })
			networktest.WantRules(t, s, map[uint16]uint32{80: 1})
			if sent = s.FlowMods() - sent; sent != 1 {
				t.Errorf("%d flow-mods were sent, want the one that deletes", sent)
			}
			maps.DeleteFunc(before, func(m openflow.Match, _ uint64) bool { return m == networktest.TCPTo(1, 81, 1).Match })
			if after := table(s); !maps.Equal(before, after) {
				t.Errorf("the cookies were %v and are %v", before, after)
			}
		})
	}
}

// table returns a switch's rules, with their cookies.
func table(s *fake.Switch) map[openflow.Match]uint64 {
	out := map[openflow.Match]uint64{}
	for _, e := range s.Table().Entries() {
		out[e.Match] = e.Cookie
	}
	return out
}
