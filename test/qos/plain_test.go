package qos

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/store/memstore"
)

// samples makes all switches send one packet of 16 by sFlow, and receives them.
func (j *joins) samples() (conn net.PacketConn) {
	j.t.Helper()
	err := j.lab.Control().Do(func() (err error) {
		conn, err = net.ListenPacket("udp", netip.AddrPortFrom(j.lab.ControllerAddr().Addr(), 0).String())
		return err
	})
	for _, s := range j.lab.Topology().Switches {
		if err == nil {
			_, err = j.lab.Switch(s.Name).Vsctl(j.t.Context(), "--id=@s", "create", "sFlow", fmt.Sprintf("targets=%q", conn.LocalAddr()), "polling=1", "sampling=16",
				"--", "set", "Bridge", "br0", "sflow=@s")
		}
	}
	if err != nil {
		j.t.Fatal(err)
	}
	return conn
}

// TestPlainTCPIsSpread checks that samples reveal three large connections of plain TCP, and
// that each has one of the three paths for itself in the end, wherever hashing had put
// them. None of their packets comes to the controller.
func TestPlainTCPIsSpread(t *testing.T) {
	t.Parallel()
	j := beginJoins(t, &joins{t: t, lab: lab.New(t, threePaths("qplain")), store: memstore.New(), sampled: true})
	over, done := make(chan struct{}), make(chan error, 3)
	end := sync.OnceFunc(func() { close(over) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*carriedTimeout)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	for i := range 3 {
		running.Go(func() { done <- j.carry(ctx, uint16(subflowPort+i), pouring{randomBytes(), over}, false) })
	}
	within(t, carriedTimeout, "each to have a way for itself", func() error {
		all := j.subflows.Subflows()
		if at := middles(all); !slices.Equal(at, []int{2, 3, 4}) {
			return fmt.Errorf("they go by %v: %+v", at, all)
		}
		return nil
	})
	end()
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if syns, others := j.asked(); syns+others != 0 {
		t.Errorf("%d SYNs and %d other packets have come up", syns, others)
	}
}
