package network_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/trace"
	"github.com/sluice-net/sluice/openflow"
)

// received adds up the packets that the ports of all switches have received.
func received(t *testing.T, l *lab.Lab, switches int) (packets int) {
	t.Helper()
	rx := regexp.MustCompile(`rx pkts=(\d+)`)
	for i := 1; i <= switches; i++ {
		out, err := l.Switch(fmt.Sprintf("s%d", i)).Ofctl(t.Context(), "dump-ports")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range rx.FindAllStringSubmatch(out, -1) {
			n, _ := strconv.Atoi(m[1])
			packets += n
		}
	}
	return packets
}

// traced follows a packet between two hosts and returns the switches it passes.
func traced(t *testing.T, n *network.Network, l *lab.Lab, from, to string) (trace.Trace, []openflow.DatapathID) {
	t.Helper()
	d, err := trace.Parse(fmt.Sprintf("icmp,nw_src=%v,nw_dst=%v,icmp_type=8", l.Host(from).Addr(), l.Host(to).Addr()))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := n.Trace(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	var switches []openflow.DatapathID
	for _, s := range tr.Steps {
		switches = append(switches, s.Switch)
	}
	return tr, switches
}

// linkName is what the lab calls the link between two switches of a ring.
func linkName(a, b openflow.DatapathID) string {
	if a > b {
		a, b = b, a
	}
	if b-a > 1 { // the ring's last link
		a, b = b, a
	}
	return fmt.Sprintf("s%d-s%d", uint64(a), uint64(b))
}

// pinging pings once in 50 ms until stopped, and then gives the lost count.
func pinging(t *testing.T, l *lab.Lab, from, to string) (stop func() (sent, lost int)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := l.Host(from).Command(ctx, "ping", "-n", "-i", "0.05", "-W", "1", l.Host(to).Addr().String())
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	finish := func() {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(os.Interrupt)
			_ = cmd.Wait()
			cancel()
		}
	}
	t.Cleanup(finish)
	return func() (int, int) {
		finish()
		m := regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`).FindStringSubmatch(out.String())
		if m == nil {
			t.Fatalf("ping said:\n%s", out.String())
		}
		sent, _ := strconv.Atoi(m[1])
		got, _ := strconv.Atoi(m[2])
		return sent, sent - got
	}
}

// TestRing shows that a loop of switches carries broadcasts without a storm, and
// that the path in use is repaired when its link dies, at the cost of little.
func TestRing(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Ring("netloop", 4, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 4, 4, 4)

	before := received(t, l, 4)
	for i := range 5 { // nobody has these addresses, so the questions go everywhere
		cmd := l.Host("h1").Command(t.Context(), "ping", "-n", "-c", "1", "-W", "1", unused(l.Host("h1").Addr(), i))
		if err := cmd.Run(); err == nil {
			t.Fatal("somebody answers for an unused address")
		}
	}
	// A question passes each of three links and comes in by one host port; there
	// are at most three questions for an address, and each answer of a host's own
	// chatter and the probes of 5 s come on top.
	const bound = 5*3*4 + 2000
	if grown := received(t, l, 4) - before; grown > bound {
		t.Fatalf("%d packets for 5 unanswered questions: that is a storm", grown)
	}

	ping(t, l, "h1", "h3")
	_, way := traced(t, n, l, "h1", "h3")
	if len(way) != 3 || way[0] != 1 || way[2] != 3 {
		t.Fatalf("the packet goes by %v, want a path of three switches from 1 to 3", way)
	}
	stop := pinging(t, l, "h1", "h3")
	link := linkName(way[1], way[2])
	if err := l.SetLink(t.Context(), link, false); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the path to avoid "+link, func() bool {
		_, now := traced(t, n, l, "h1", "h3")
		return len(now) == 3 && now[1] != way[1]
	})
	ping(t, l, "h1", "h3")
	ping(t, l, "h2", "h4")
	sent, lost := stop()
	t.Logf("link %s died under a ping of 20 per second: %d of %d lost", link, lost, sent)
	if lost > 20 {
		t.Errorf("%d of %d packets lost over the death of a link, want less than a second's worth", lost, sent)
	}

	if err := l.SetLink(t.Context(), link, true); err != nil {
		t.Fatal(err)
	}
	ready(t, n, 4, 4, 4)
	before = received(t, l, 4)
	ping(t, l, "h4", "h2")
	if grown := received(t, l, 4) - before; grown > bound {
		t.Errorf("%d packets for a ping after the ring has closed again: that is a storm", grown)
	}
}

// unused is an address in the hosts' subnet that no host has.
func unused(a netip.Addr, i int) string {
	b := a.As4()
	b[3] = byte(200 + i)
	return netip.AddrFrom4(b).String()
}

// TestSwitchDies shows that traffic goes round a switch that dies and comes back.
func TestSwitchDies(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Ring("netdeath", 4, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 4, 4, 4)
	ping(t, l, "h1", "h3")
	_, way := traced(t, n, l, "h1", "h3")
	victim := l.Switch(fmt.Sprintf("s%d", uint64(way[1])))
	if err := victim.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the path to avoid the dead switch", func() bool {
		_, now := traced(t, n, l, "h1", "h3")
		return len(now) == 3 && now[1] != way[1]
	})
	ping(t, l, "h1", "h3")
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready(t, n, 4, 4, 4)
	ping(t, l, "h1", fmt.Sprintf("h%d", uint64(way[1])))
}

func TestHostsAreLearnedWithTheirAddresses(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netlearn", 2, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 2, 1, 2)
	for _, addr := range []netip.Addr{l.Host("h2").Addr(), l.Host("h2").Addr6()} {
		out, err := l.Host("h1").Command(t.Context(), "ping", "-n", "-c", "2", "-W", "2", addr.String()).CombinedOutput()
		if err != nil {
			t.Fatalf("ping %v: %v\n%s", addr, err, out)
		}
	}
	for i := 1; i <= 2; i++ {
		h := l.Host(fmt.Sprintf("h%d", i))
		port, err := l.Switch(fmt.Sprintf("s%d", i)).Port(fmt.Sprintf("h%d-s%d", i, i))
		if err != nil {
			t.Fatal(err)
		}
		at := network.PortRef{Switch: openflow.DatapathID(l.Switch(fmt.Sprintf("s%d", i)).DPID()), Port: uint32(port)}
		for _, addr := range []netip.Addr{h.Addr(), h.Addr6()} {
			got, ok := n.HostByIP(addr)
			if !ok || got.MAC != h.MAC() || got.At != at {
				t.Errorf("%v is %+v, %v; want %v at %v", addr, got, ok, openflow.MAC(h.MAC()), at)
			}
		}
	}
	if hosts := n.Hosts(); len(hosts) != 2 {
		t.Errorf("%d hosts, want 2: %v", len(hosts), hosts)
	}
}

// TestHostMoves has one host take over the addresses of another, as a virtual
// machine does that moves, while a third keeps pinging.
func TestHostMoves(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("netmove", 3, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 3, 2, 3)
	ping(t, l, "h1", "h2")
	moved := make(chan network.Event, 16)
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.HostMoved {
			select {
			case moved <- e:
			default:
			}
		}
	})
	addr := l.Host("h2").Addr()
	old := interfaceOf(t, l, "h2", addr)
	mac := openflow.MAC(l.Host("h2").MAC())
	sh(t, l, "h2", "ip", "addr", "flush", "dev", old)
	sh(t, l, "h2", "ip", "link", "set", old, "address", "02:00:00:00:00:77") // its chatter is another host's now
	now := interfaceOf(t, l, "h3", l.Host("h3").Addr())
	sh(t, l, "h3", "ip", "addr", "flush", "dev", now)
	sh(t, l, "h3", "ip", "link", "set", now, "address", mac.String())
	sh(t, l, "h3", "ip", "addr", "add", netip.PrefixFrom(addr, 24).String(), "dev", now)
	sh(t, l, "h3", "ping", "-n", "-c", "3", "-i", "0.2", "-W", "2", l.Host("h1").Addr().String())
	ping(t, l, "h1", "h2")
	select {
	case e := <-moved:
		if e.Host.MAC != mac || e.From.Switch != 2 || e.Host.At.Switch != 3 {
			t.Errorf("event %+v", e)
		}
	case <-time.After(networktest.Timeout):
		t.Error("no event tells of the move")
	}
	if h, ok := n.HostByIP(addr); !ok || h.At.Switch != 3 {
		t.Errorf("%v is at %v, %v; want switch 3", addr, h.At, ok)
	}
}

func sh(t *testing.T, l *lab.Lab, host string, command ...string) string {
	t.Helper()
	out, err := l.Host(host).Command(t.Context(), command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s on %s: %v\n%s", strings.Join(command, " "), host, err, out)
	}
	return string(out)
}

// interfaceOf is the interface of a host that has an address.
func interfaceOf(t *testing.T, l *lab.Lab, host string, a netip.Addr) string {
	t.Helper()
	fields := strings.Fields(sh(t, l, host, "ip", "-o", "addr", "show", "to", a.String()))
	if len(fields) < 2 {
		t.Fatalf("no interface of %s has %v", host, a)
	}
	return fields[1]
}
