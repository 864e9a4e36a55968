package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/store/memstore"
)

// samples has all switches send one packet of 16 by sFlow, and receives them.
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

// Three large connections of plain TCP are found by samples, and each has one of the three ways
// for itself in the end, wherever hash had put them. No packet of theirs comes to the controller.
func TestPlainTCPIsSpread(t *testing.T) {
	j := beginJoins(t, &joins{t: t, lab: lab.New(t, threeWays("qplain")), store: memstore.New(), sampled: true})
	const size = 32 << 20
	ctx, cancel := context.WithTimeout(t.Context(), patience*3)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	done := make(chan error, 3)
	for i := range 3 {
		running.Go(func() {
			to := netip.AddrPortFrom(j.lab.Host("b").Addr(), uint16(subflowPort+i))
			log, err := stage.Bulk{From: j.lab.Host("a"), To: j.lab.Host("b"), Addr: to, Bytes: size}.Run(ctx)
			if err == nil && log.Bytes != size {
				err = fmt.Errorf("%d of %d bytes have arrived", log.Bytes, size)
			}
			done <- err
		})
	}
	within(t, patience, "each to have a way for itself", func() error {
		all := j.subflows.Subflows()
		if at := middles(all); !slices.Equal(at, []int{2, 3, 4}) {
			return fmt.Errorf("they go by %v: %+v", at, all)
		}
		return nil
	})
	var err error
	for range 3 {
		err = errors.Join(err, <-done)
	}
	if n := j.asked.Load(); err != nil || n != 0 {
		t.Errorf("%v; %d packets have come up", err, n)
	}
}
