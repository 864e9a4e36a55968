package lab_test

import (
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

func TestMobilityShapes(t *testing.T) {
	for _, c := range []struct {
		o                      lab.MobilityOptions
		switches, edges, links int // of one domain; links are those between switches
	}{
		{lab.MobilityOptions{}, 7, 4, 6},
		{lab.MobilityOptions{Levels: 2, Fanout: 3}, 4, 3, 3},
		{lab.MobilityOptions{Cross: true}, 7, 4, 10},
		{lab.MobilityOptions{Roots: 2}, 8, 4, 8},
	} {
		topology := lab.Mobility("m", c.o)
		if err := topology.Check(); err != nil {
			t.Errorf("%+v: %v", c.o, err)
		}
		isSwitch, links := map[string]bool{}, 0
		for _, s := range topology.Switches {
			isSwitch[s.Name] = true
		}
		for _, l := range topology.Links {
			if isSwitch[l.A.Node] && isSwitch[l.B.Node] {
				links++
			}
		}
		if d := c.o.Domain(); len(isSwitch) != c.switches || len(d.Edges) != c.edges || links != c.links || !isSwitch[d.Edges[0]] {
			t.Errorf("%+v: %d switches, edges %v, %d links", c.o, len(isSwitch), d.Edges, links)
		}
		text, err := topology.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := lab.Parse("mobility", text)
		if err != nil {
			t.Fatal(err)
		}
		second, err := again.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if third, err := lab.Parse("mobility", second); err != nil || !reflect.DeepEqual(again, third) {
			t.Errorf("%+v: not the same after writing and reading: %v", c.o, err)
		}
	}
	if err := lab.MobilityDomains("two", lab.MobilityOptions{Devices: 3}).Check(); err != nil {
		t.Error(err)
	}
}

// TestMobilityReachesTheServer gives a device an address by hand, makes the tree a bridge, and
// checks that routers and server answer.
func TestMobilityReachesTheServer(t *testing.T) {
	t.Parallel()
	o := lab.MobilityOptions{Levels: 2, Roots: 2, Interfaces: 1, ControlDelay: 30 * time.Millisecond, Link: delayline.Params{Delay: time.Millisecond}}
	l := lab.New(t, lab.Mobility("mobility", o))
	d, dev, ctx := o.Domain(), l.Host("dev1"), testContext(t)
	forwardAsBridge(t, l, d.Root, "edge1")
	if out := output(t, dev, "ip", "-4", "addr", "show", "dev", "eth0"); strings.Contains(out, "inet ") {
		t.Errorf("a dynamic host has an address:\n%s", out)
	}
	output(t, dev, "ip", "addr", "add", "10.20.7.7/16", "dev", "eth0")
	output(t, dev, "ip", "route", "add", "default", "via", d.GatewayAddr.String())
	transfer(t, l.Host("server"), dev, "10.20.7.7", 1e6)
	if !pings(t, dev, d.ServerAddr.String()) {
		t.Error("the server is not reached")
	}
	forwardAsBridge(t, l, "root2")
	if _, err := l.Switch(d.Root).Ofctl(ctx, "del-flows"); err != nil {
		t.Fatal(err)
	}
	output(t, dev, "ip", "route", "replace", "default", "via", d.GatewayAddr.Next().String())
	output(t, l.Host("server"), "ip", "route", "replace", "default", "via", "198.51.100.1")
	if !pings(t, dev, d.ServerAddr.String()) {
		t.Error("the server is not reached by the second root")
	}
}

// TestControlDelay measures the delay of a switch's link to the control network,
// and cuts it.
func TestControlDelay(t *testing.T) {
	t.Parallel()
	topology := lab.Line("ctldelay", 2, delayline.Params{})
	topology.Switches[1].ControlDelay = 40 * time.Millisecond
	l := lab.New(t, topology)
	ctx := testContext(t)
	ln, err := l.Control().Listen("tcp", l.ControllerAddr().Addr().String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dial := func(s string, timeout time.Duration) error {
		n, err := l.Node(s)
		if err != nil {
			t.Fatal(err)
		}
		return n.Do(func() error {
			c, err := net.DialTimeout("tcp", ln.Addr().String(), timeout)
			if err == nil {
				err = c.Close()
			}
			return err
		})
	}
	took := func(s string) time.Duration {
		start := time.Now()
		if err := dial(s, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	took("s2") // The first ping sends an ARP request as well.
	if d := took("s2"); d < 80*time.Millisecond {
		t.Errorf("a round trip of s2 took %v, want at least 80 ms", d)
	}
	for _, s := range []string{"s1", "s2"} {
		if err := l.SetLink(ctx, "control-"+s, false); err != nil {
			t.Fatal(err)
		}
		if err := dial(s, 300*time.Millisecond); err == nil {
			t.Errorf("%s reaches the controllers with its control link cut", s)
		}
		if err := l.SetLink(ctx, "control-"+s, true); err != nil {
			t.Fatal(err)
		}
		waitFor(t, s+" to reach the controllers again", func() bool { return dial(s, time.Second) == nil })
	}
}
