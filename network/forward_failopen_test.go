package network_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// TestAskedAtOnceAfterFailingOpen checks what happens without a controller: rules that ask it
// expire, and packets without a rule follow the tree. A new controller is asked at once and not
// only when it knows the tree, because until then no host could answer it.
func TestAskedAtOnceAfterFailingOpen(t *testing.T) {
	var later atomic.Int64
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 3, Clock: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
	n, stop := networktest.Start(t, network.Config{})
	gone := networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 3)
	stop()
	gone()
	later.Store(int64(rule.LeaseFor))
	if err := s.Expire(); err != nil {
		t.Log(err) // no controller is connected
	}
	asks := func() bool {
		r, err := s.Receive(1, networktest.Frame(1, 2))
		if err != nil {
			t.Log(err)
		}
		return slices.Contains(r.Ports(), openflow.PortController)
	}
	if asks() {
		t.Fatal("a controller is asked that is not there")
	}
	n, _ = networktest.Start(t, network.Config{DiscoveryInterval: 100 * time.Millisecond, DiscoverySettle: time.Hour})
	networktest.Connect(t, n, s, 1)
	networktest.Eventually(t, "a controller to be asked", asks)
}
