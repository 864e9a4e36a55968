package network

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// TestResolveFindsAHostThatWasLearnedMeanwhile checks that a host is found that was learned just
// before the search began. Its answer changes nothing in the table, so nothing wakes the search.
func TestResolveFindsAHostThatWasLearnedMeanwhile(t *testing.T) {
	t.Parallel()
	n, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	at := PortRef{Switch: 1, Port: 2}
	n.links.PortUp(at, openflow.MAC{2, 1}, time.Now().Add(-time.Hour)) // so that the port is an edge port
	n.links.Tick(time.Now())
	a := netip.MustParseAddr("10.0.0.9")
	type result struct {
		host Host
		err  error
	}
	found := make(chan result, 1)
	go func() {
		h, err := n.ResolveHost(t.Context(), a)
		found <- result{h, err}
	}()
	deadline := time.Now().Add(time.Minute)
	for waiting := false; !waiting; {
		n.resolver.mu.Lock()
		waiting = n.resolver.waiting[a] != nil
		n.resolver.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the host")
		}
	}
	mac := openflow.MAC{2, 0, 0, 0, 0, 9}
	h, err := packet.Parse(packet.AppendARPRequest(nil, mac, a, netip.MustParseAddr("10.0.0.1"), 0))
	if err != nil {
		t.Fatal(err)
	}
	n.hosts.Learn(&h, at, time.Now()) // without waking anybody
	if r := <-found; r.err != nil || r.host.MAC != mac || r.host.At != at {
		t.Errorf("%+v", r)
	}
	if _, err := n.ResolveHost(t.Context(), netip.MustParseAddr("10.0.0.10")); !errors.Is(err, ErrUnknownHost) {
		t.Errorf("a host that is not there: %v", err)
	}
}
