package handover

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/rule"
)

// Without a border port devices cannot be served, and other DHCP servers of the network are left
// alone.
func TestPuntsNeedARoot(t *testing.T) {
	for name, borders := range map[string][]Border{"a border port": {{Name: "up", At: uplink}}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(x *Settings) { x.Borders = borders })
			r.guards.applyPunts(t.Context())
			punts := 0
			for _, key := range r.w.Keys() {
				if strings.HasPrefix(key, keyPunt+"/") {
					punts++
				}
			}
			if want := len(borders) * len(r.w.Topology().Switches); punts != want {
				t.Errorf("%d switches have punt rules, want %d", punts, want)
			}
		})
	}
}

// After a restart of the controller no punt rules are sent to a switch that has them, even if the
// service is ready long before the switch is back.
func TestRestartLeavesPunts(t *testing.T) {
	sw, st := fake.NewSwitch(fake.Options{DPID: 1, Ports: 9}), newStore(t)
	punts := func() (n int) {
		for _, e := range sw.Table().Entries() {
			if rule.Cookie(e.Cookie).Owner() == rule.OwnerHash(Name) {
				n++
			}
		}
		return n
	}
	var sent []int
	for generation := range uint16(2) {
		n, err := network.New(network.Config{Listen: []string{"127.0.0.1:0"}, Generation: generation, DisableForwarding: true})
		if err != nil {
			t.Fatal(err)
		}
		owner, err := n.Owner(Name, network.OwnerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{Network: n, Rules: owner, Log: slog.New(slog.DiscardHandler), Store: st, Settings: testSettings(t)})
		if err != nil {
			t.Fatal(err)
		}
		n.Subscribe(s.NetworkChanged)
		stop := background(t, n.Run, s.Run)
		r := rig{Service: s, t: t}
		r.eventually("the service to be ready", func() bool { return s.api.status().Ready })
		before := sw.FlowMods()
		leave := background(t, func(ctx context.Context) error { return sw.Dial(ctx, n.Addr()[0]) })
		r.eventually("the switch to be up", func() bool { _, up := n.Switch(1); return up })
		r.eventually("punt rules", func() bool { return punts() >= 4 })
		s.guards.applyPunts(t.Context())
		sent = append(sent, sw.FlowMods()-before)
		leave()
		stop()
	}
	if sent[0] == 0 || sent[1] != 0 {
		t.Errorf("the switch was sent %d flow-mods at first and %d after the restart, want some and none", sent[0], sent[1])
	}
}

// background runs functions until the test ends or stop is called.
func background(t *testing.T, all ...func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for _, f := range all {
		group.Go(func() {
			if err := f(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(stop)
	return stop
}
