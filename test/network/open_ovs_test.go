package network_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network/networktest"
)

// A rule for first packets that comes and goes, as a leased one does, is in force whenever it
// is there, if below it stands one of the same match that stays. Without that one, Open
// vSwitch 3.1 went on with what it had cached in 6 of 80 times (docs/topics/cached-decisions.md).
func TestRuleThatComesAndGoes(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Tree("netopen", 1, 2, delayline.Params{}))
	s, client, server := l.Switch("s1"), l.Host("h1"), l.Host("h2")
	ofctl := func(command string, args ...string) {
		t.Helper()
		if _, err := s.Ofctl(t.Context(), command, args...); err != nil {
			t.Fatal(err)
		}
	}
	listen(t, server, 80)
	connect := func(port uint16) error {
		return client.Do(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(server.Addr(), port).String())
			if err != nil {
				return err
			}
			return c.Close()
		})
	}
	first := fmt.Sprintf("tcp,nw_dst=%v,tp_dst=80,tcp_flags=+syn-ack", server.Addr())
	for _, flow := range []string{
		"table=0,priority=0,actions=goto_table:1", "table=1,priority=0,actions=goto_table:2",
		"table=2,in_port=1,actions=output:2", "table=2,in_port=2,actions=output:1",
		"table=1,priority=1," + first + ",actions=goto_table:2",
	} {
		ofctl("add-flow", flow)
	}
	for round := range uint16(12) {
		ofctl("add-flow", "table=1,priority=2,"+first+",actions=drop")
		networktest.Eventually(t, "first packets to be dropped", func() bool { return connect(80) != nil })
		for range 2 {
			if connect(80) == nil {
				t.Fatalf("round %d: a first packet passes a rule that drops it", round)
			}
		}
		ofctl("del-flows", "--strict", "table=1,priority=2,"+first)
		networktest.Eventually(t, "first packets to pass again", func() bool { return connect(80) == nil })
		// Other packets, of which more is cached, and which are looked for first.
		for until := time.Now().Add(1200 * time.Millisecond); time.Now().Before(until); {
			_ = connect(1000 + round)
		}
	}
}

// listen accepts connections at a host's port until the test ends.
func listen(t *testing.T, h *lab.LiveHost, port uint16) {
	t.Helper()
	var ln net.Listener
	if err := h.Do(func() (err error) {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(h.Addr(), port).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
}
