package qos

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/match"
)

// matched returns how many packets a class's rules have put into its queue at its first
// port.
func (c *classesLab) matched(name string) uint64 {
	s, _ := c.service.Stats(name)
	if len(s.Queues) == 0 {
		return 0
	}
	return s.Queues[0].Matched
}

// twoForOneFlow checks that of two classes for one flow, the one of higher priority gets
// the packets, and that the other reports this as long as the first exists.
func (c *classesLab) twoForOneFlow(t *testing.T) {
	c.add(c.udp("low", "h1", "h3", 7001, 5))
	c.add(c.udp("high", "h1", "h3", 7001, 2))
	if i, _ := c.service.Class("low"); i.State != classes.StateIneffective || !strings.Contains(i.Reason, "class high") {
		t.Errorf("the shadowed class: %s, %q", i.State, i.Reason)
	}
	c.floods(1e6, 7001)
	carries := func(name string) {
		before := c.matched(name)
		within(t, testTimeout, "packets of "+name, func() error {
			if n := c.matched(name); n < before+100 {
				return fmt.Errorf("%d, before %d", n, before)
			}
			return nil
		})
	}
	carries("high")
	if n := c.matched("low"); n != 0 {
		t.Errorf("%d packets are the shadowed class's", n)
	}
	c.delete("high")
	if i, _ := c.service.Class("low"); i.State != classes.StateActive {
		t.Errorf("alone: %s, %q", i.State, i.Reason)
	}
	carries("low")
}

// fragments checks that a class that names ports does not get fragments and says so when it
// is requested, and that a class that names none gets them.
func (c *classesLab) fragments(t *testing.T) {
	c.add(c.udp("ports", "h1", "h3", 7001, 2))
	if i, _ := c.service.Class("ports"); len(i.Notes) != 1 || !strings.Contains(i.Notes[0], "fragments") {
		t.Errorf("notes %q", i.Notes)
	}
	flood, err := testbed.Flood{
		From: c.lab.Host("h1"), To: c.lab.Host("h3"), Dst: netip.AddrPortFrom(c.addr("h3"), 7001), Rate: 1e6, Bytes: 4000,
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(flood.Stop)
	c.add(classes.ClassSpec{Name: "all", Priority: "2", MinRate: "1000000", Flows: []match.Flow{{IPv4Src: text(c.addr("h1")), IPv4Dst: text(c.addr("h3")), IPProto: "udp"}}})
	within(t, testTimeout, "fragments are counted", func() error {
		if n := c.matched("all"); n < 100 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	if n := c.matched("ports"); n != 0 {
		t.Errorf("%d fragments are the class's with ports: it need not say that it does not get them", n)
	}
}
