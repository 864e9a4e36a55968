package kit

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// TestPortLimiter checks that a port that sends very many packets does not use up the share of the
// others, nor does a switch with many such ports, and that a packet with an older time adds no
// tokens.
func TestPortLimiter(t *testing.T) {
	const placedEach, placedOfSwitch, placedAll = 1000, 2500, 10_000
	r := NewPortLimiter(placings)
	now := time.Unix(1000, 0)
	allowed := func(at network.PortRef, tries int) (n int) {
		for range tries {
			if r.Allow(at, now) {
				n++
			}
		}
		return n
	}
	if n := allowed(network.PortRef{Switch: 1, Port: 1}, 2*placedEach); n != placedEach {
		t.Errorf("%d of one port, want %d", n, placedEach)
	}
	now = now.Add(-time.Hour)
	if n := allowed(network.PortRef{Switch: 1, Port: 1}, 2*placedEach); n != 0 {
		t.Errorf("%d more at an older time", n)
	}
	rest := 0
	for port := range uint32(8) {
		rest += allowed(network.PortRef{Switch: 1, Port: 2 + port}, placedEach)
	}
	if want := placedOfSwitch - placedEach; rest != want {
		t.Errorf("%d of other ports of the switch, want %d", rest, want)
	}
	all := 0
	for d := range openflow.DatapathID(8) {
		for port := range uint32(4) {
			all += allowed(network.PortRef{Switch: 2 + d, Port: 1 + port}, placedEach)
		}
	}
	if want := placedAll - placedOfSwitch; all != want {
		t.Errorf("%d of other switches, want %d", all, want)
	}
}
