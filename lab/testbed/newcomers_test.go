package testbed

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

// No two of them have an address in common, and pairs come again only after all others
// of their clients.
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
