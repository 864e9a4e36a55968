package lab_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// TestManyNeighboursOfOneHost checks that a host that looks for many neighbours does not keep
// another host from finding its own. The kernel counts the neighbours of all network namespaces
// together.
func TestManyNeighboursOfOneHost(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("neighbours", 3, delayline.Params{}))
	forwardAsBridge(t, l, "s1", "s2", "s3")
	for _, there := range []netip.Addr{l.Host("h2").Addr(), l.Host("h2").Addr6()} {
		t.Run(there.String(), func(t *testing.T) {
			ask(t, l.Host("h3"), there, 3000)
			output(t, l.Host("h1"), "ping", "-c1", "-w2", there.String())
		})
	}
}

// ask sends a packet to each of many addresses of a network that nobody has.
func ask(t *testing.T, h *lab.LiveHost, network netip.Addr, n int) {
	t.Helper()
	err := h.Do(func() error {
		c, err := net.ListenUDP("udp", nil)
		if err != nil {
			return err
		}
		defer c.Close()
		b := network.AsSlice()
		for i := range n {
			b[len(b)-1], b[len(b)-2] = byte(i), 100+byte(i>>8)
			to, _ := netip.AddrFromSlice(b)
			if _, err := c.WriteToUDPAddrPort([]byte{0}, netip.AddrPortFrom(to, 9)); err != nil {
				return fmt.Errorf("neighbour %d: %w", i, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
