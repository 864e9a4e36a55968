package testbed

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

// TestNewcomersDiffer checks that no two of them share an address, and that a pair repeats only
// after all other pairs of its client.
func TestNewcomersDiffer(t *testing.T) {
	n := &Newcomers{count: 600}
	macs, addrs := map[openflow.MAC]bool{}, map[netip.Addr]bool{}
	n.All(func(m openflow.MAC, a netip.Addr) { macs[m], addrs[a] = true, true })
	if len(macs) != 2*n.count || len(addrs) != 2*n.count {
		t.Errorf("%d MAC and %d IP addresses, want %d", len(macs), len(addrs), 2*n.count)
	}
	pairs := map[[2]int]bool{}
	for range n.count * n.count {
		client, server := n.pair()
		pairs[[2]int{client, server}] = true
	}
	if len(pairs) != n.count*n.count {
		t.Errorf("%d pairs, want %d", len(pairs), n.count*n.count)
	}
}
