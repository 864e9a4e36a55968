package network_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
)

// TestLinkStandsByWhatItCarries: a link over which no probe gets is there as long as other
// packets do, and gone when nothing does, whatever is sent.
func TestLinkStandsByWhatItCarries(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netfull", 2, delayline.Params{Delay: time.Millisecond}))
	var log logtest.Log
	const timeout = time.Second
	var mu sync.Mutex
	var downs []network.Event
	n, _ := run(t, l, network.Config{DiscoveryTimeout: timeout, Log: log.Logger()})
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.LinkDown {
			mu.Lock()
			defer mu.Unlock()
			downs = append(downs, e)
		}
	})
	gone := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(downs)
	}
	ready(t, n, 2, 1, 2)
	ping(t, l, "h1", "h2")
	echoes := l.Host("h1").Command(t.Context(), "ping", "-n", "-q", "-i", "0.05", l.Host("h2").Addr().String())
	if err := echoes.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echoes.Wait() }) // after the test's context has ended it
	s2 := l.Switch("s2")
	port, err := s2.Port("s1-s2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s2.Ofctl(t.Context(), "add-flow", fmt.Sprintf("priority=65535,in_port=%d,dl_type=0x88cc,actions=drop", port)); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the controller to say that probes are lost", func() bool { return strings.Contains(log.String(), "probes of a link are lost") })
	pause.For(3*timeout, "the link would be dead by then")
	if len(n.Topology().Links) != 2 || gone() != 0 {
		t.Errorf("with 20 packets a second the links are %v, %d were declared dead", n.Topology().Links, gone())
	}
	if err := l.SetLinkParams(t.Context(), "s1-s2", delayline.Params{Delay: time.Millisecond, Loss: 1}); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the link over which nothing gets to be dead, both ways", func() bool { return gone() == 2 })
}
