package sos

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/sos"
)

// outage holds a transfer and an idle connection through the agents, and the same without
// agents. Each of them has to survive what TCP survives.
type outage struct {
	*world
	busy, idle, plain *net.TCPConn
}

// outageSize is how much the transfers carry. Over outagePath that takes some seconds, so
// that an outage begins in the middle of it.
const outageSize = 6 << 20

var outagePath = delayline.Params{Rate: 20e6, Delay: 10 * time.Millisecond}

// plainPort is a port of the server that is not whitelisted.
const plainPort = 99

// newOutage starts the connections and waits until bytes flow.
func newOutage(t *testing.T, name string) *outage {
	t.Helper()
	o := &outage{world: newWorld(t, lab.TwoPathWAN(name, outagePath, outagePath), options{})}
	// The choice of agents does not depend on latencies that a busy machine has measured
	// once.
	hops := network.MetricHops.String()
	if err := o.rest.Do(t.Context(), "PATCH", "/api/v1/sos/config", sos.ConfigChange{Metric: &hops}, nil); err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint16{80, plainPort} {
		o.serve(port, func(c *net.TCPConn) {
			_, _ = io.CopyN(io.Discard, c, 1)
			_, _ = io.CopyN(c, content(1), outageSize)
		})
	}
	o.serve(81, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	o.busy, o.idle, o.plain = o.mustDial(80), o.mustDial(81), o.mustDial(plainPort)
	for _, c := range []net.Conn{o.busy, o.idle, o.plain} {
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(o.idle, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	o.eventually("both sessions carry bytes", func() bool {
		live := o.sessions("live")
		return len(live) == 2 && live[0].BytesDown > 0 && live[1].BytesDown > 0
	})
	return o
}

// survived checks that every connection still works.
func (o *outage) survived() {
	o.t.Helper()
	if n := len(o.sessions("live")); n != 2 {
		o.t.Errorf("%d sessions after the outage, want 2", n)
	}
	var all sync.WaitGroup
	for name, c := range map[string]*net.TCPConn{"by SOS": o.busy, "direct": o.plain} {
		all.Go(func() {
			got, n, err := drain(c, 3*testTimeout)
			if err != nil || n != outageSize || got != sum(1, outageSize) {
				o.t.Errorf("%s: read %d bytes (%.12s), %v; want %d (%.12s)", name, n, got, err, outageSize, sum(1, outageSize))
			}
		})
	}
	all.Wait()
	if _, err := copyContent(o.idle, 7, 10000); err != nil {
		o.t.Errorf("idle connection: %v", err)
	}
	_ = o.idle.CloseWrite()
	o.wantContent(o.idle, 7, 10000)
	for _, c := range []*net.TCPConn{o.busy, o.idle, o.plain} {
		_ = c.Close()
	}
	o.clean()
	for _, r := range o.sessions("past") {
		if r.How != "closed" {
			o.t.Errorf("session %v to %v: %s", r.Client, r.Server, r.How)
		}
	}
}

// away waits for an outage to be over; its length is what the test is about.
func (o *outage) away(d time.Duration) { pause.For(d, "the outage lasts") }

// TestPathsDown takes down every path between the agents for a time that TCP survives: no
// connection is reset, whether it is busy or idle.
func TestPathsDown(t *testing.T) {
	t.Parallel()
	o := newOutage(t, "sosout")
	set := func(up bool) {
		for _, path := range []string{"path1", "path2"} {
			if err := o.lab.SetLink(t.Context(), path, up); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(false)
	o.away(20 * time.Second) // longer than it takes to call an agent hung
	set(true)
	o.survived()
}

// TestPortDown takes down a switch's port towards an end host or an agent for a second,
// which is too short for the agent to count as unplugged.
func TestPortDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ host, at string }{{"client", "s1"}, {"x", "s1"}, {"y", "s2"}, {"server", "s2"}} {
		t.Run(c.host, func(t *testing.T) {
			t.Parallel()
			o := newOutage(t, "sosport"+c.host[:1])
			_, port := o.lab.Link(o.linkOf(c.host)).Attachment()
			set := func(state string) {
				if _, err := o.lab.Switch(c.at).Ofctl(t.Context(), "mod-port", fmt.Sprint(port), state); err != nil {
					t.Fatal(err)
				}
			}
			set("down")
			o.away(time.Second)
			set("up")
			o.survived()
		})
	}
}

// TestControlCutOff interrupts the path between an agent and the controller while the agent
// carries sessions: the other agent hears it, so its sessions continue.
func TestControlCutOff(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"x", "y"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			o := newOutage(t, "sosctlc"+host)
			o.inHost(host, "ip", "link", "set", "ctl0", "down")
			o.away(6 * time.Second)
			o.inHost(host, "ip", "link", "set", "ctl0", "up")
			o.survived()
		})
	}
}
