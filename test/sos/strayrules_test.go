package sos

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
)

// TestStrayPacketsOfAgents has an agent's host send segments from the agent's
// address that belong to no session: none of them reaches an end host, while what
// comes from other ports of the host does.
func TestStrayPacketsOfAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosstray", wan), options{})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	w.echo(80) // everybody knows everybody now
	w.eventually("the agents are guarded", func() bool {
		return strings.Contains(w.flows("s2"), fmt.Sprintf("priority=%d,", network.StageSelect.Base()+rule.SelectAgent))
	})
	agent := w.lab.Host("y").Addr()
	arrived := w.arrivals("server", agent)
	var strays []netip.AddrPort
	for _, port := range []uint16{10240, 16000, 25000, 32767} {
		strays = append(strays, netip.AddrPortFrom(agent, port))
	}
	raw := w.rawSender("y")
	send := func(ip []byte) {
		t.Helper()
		if err := raw(ip); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		for _, from := range strays {
			send(synPacket(from, w.serverAddr(80)))
		}
	}
	send(synPacket(netip.AddrPortFrom(agent, 40000), w.serverAddr(80)))
	select {
	case port := <-arrived:
		if port != 40000 {
			t.Errorf("a segment from session port %d, without a session, reached the server", port)
		}
	case <-time.After(testTimeout):
		t.Fatal("what is no stray did not arrive either")
	}
	w.echo(80)
	w.clean()
}

// TestNothingCachedOfEnded ends a session and checks that Open vSwitch drops its cached
// decisions about it together with the rules. A stale decision would apply to the next
// user of the ports. The test makes decisions live for an hour after their last packet,
// so that none of them can disappear by its age.
func TestNothingCachedOfEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("soscache", wan), options{})
	for _, name := range []string{"s1", "s2"} {
		if _, err := w.lab.Switch(name).Vsctl(t.Context(), "set", "Open_vSwitch", ".", "other_config:max-idle=3600000"); err != nil {
			t.Fatal(err)
		}
	}
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	w.echo(80)
	if len(w.sessions("past"))+len(w.sessions("live")) != 1 {
		t.Fatal("no session carried the connection")
	}
	w.clean()
	for _, name := range []string{"s1", "s2"} {
		w.eventually("nothing of the session is cached in "+name, func() bool {
			return len(w.cachedTCP(name, "10.0.0.1"))+len(w.cachedTCP(name, "10.0.0.2")) == 0
		})
	}
}

// cachedTCP are the decisions about TCP of an end host that a switch keeps.
func (w *world) cachedTCP(name, host string) (found []string) {
	w.t.Helper()
	for _, end := range []string{"src=", "dst="} {
		some, err := w.lab.Switch(name).Cached(w.t.Context(), "proto=6", end+host+",")
		if err != nil {
			w.t.Fatal(err)
		}
		found = append(found, some...)
	}
	return found
}

// arrivals tells the source port of each TCP segment that reaches a host from an
// address.
func (w *world) arrivals(host string, from netip.Addr) <-chan uint16 {
	w.t.Helper()
	out := make(chan uint16, 100)
	w.watchFrames(host, func(frame []byte) {
		h, err := packet.Parse(frame)
		if err == nil && h.Has(packet.TCP) && h.Src == from {
			select {
			case out <- h.SrcPort:
			default:
			}
		}
	})
	return out
}
