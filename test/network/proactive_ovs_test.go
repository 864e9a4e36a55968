package network_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// clos is two leaves with two hosts each and a link to each of three spines.
func clos(name string) lab.Topology {
	t := lab.Topology{Name: name}
	for _, s := range []string{"leaf1", "leaf2", "spine1", "spine2", "spine3"} {
		t.Switches = append(t.Switches, lab.Switch{Name: s})
	}
	for i, leaf := range []string{"leaf1", "leaf1", "leaf2", "leaf2"} {
		host := fmt.Sprintf("h%d", i+1)
		t.Hosts = append(t.Hosts, lab.Host{Name: host})
		t.Links = append(t.Links, lab.Both(host, leaf, delayline.Params{}))
	}
	for _, leaf := range []string{"leaf1", "leaf2"} {
		for _, spine := range []string{"spine1", "spine2", "spine3"} {
			t.Links = append(t.Links, lab.Both(leaf, spine, delayline.Params{}))
		}
	}
	return t
}

// asked counts packets that come up to the controller and tell of no host.
type asked struct{ atomic.Int64 }

func (*asked) Name() string { return "asked" }

func (a *asked) HandlePacketIn(p *network.PacketIn) network.Verdict {
	if p.Headers.DstPort == closPort {
		a.Add(1)
	}
	return network.Continue
}

const (
	closPort  = 7000
	closFlows = 24
	closEach  = 10 // packets of a flow at a time
	closSize  = 100
)

// closNet is such a network with rules by destination, connections between two hosts, and a stream
// of datagrams beside them. By Open vSwitch's hash all datagrams between two hosts go one way.
type closNet struct {
	t       *testing.T
	l       *lab.Lab
	n       *network.Network
	stop    func()
	asked   *asked
	flows   []net.Conn
	came    atomic.Int64 // bytes of connections
	gram    net.Conn
	gotGram atomic.Int64 // datagrams
}

func newClos(t *testing.T, name string, c network.Config) *closNet {
	t.Helper()
	x := &closNet{t: t, l: lab.New(t, clos(name)), asked: &asked{}}
	x.start(c)
	ready(t, x.n, 5, 6, 4)
	for _, h := range []string{"h1", "h2", "h4"} {
		ping(t, x.l, h, "h3")
	}
	x.ruled(5 * 4)
	x.revalidate()
	to := netip.AddrPortFrom(x.l.Host("h3").Addr(), closPort)
	x.serve(to)
	for range closFlows {
		x.on("h1", func() error {
			c, err := net.DialTimeout("tcp4", to.String(), networktest.Timeout)
			x.flows = append(x.flows, c)
			return err
		})
	}
	x.on("h1", func() (err error) {
		x.gram, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	t.Cleanup(func() {
		for _, c := range append(x.flows, x.gram) {
			_ = c.Close()
		}
	})
	return x
}

// serve counts what comes to h3.
func (x *closNet) serve(at netip.AddrPort) {
	var listener net.Listener
	var grams *net.UDPConn
	x.on("h3", func() (err error) {
		if listener, err = net.Listen("tcp4", at.String()); err == nil {
			grams, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		}
		return err
	})
	var all sync.WaitGroup
	over, end := context.WithCancel(context.Background())
	x.t.Cleanup(func() {
		_, _ = listener.Close(), grams.Close()
		end()
		all.Wait()
	})
	read := func(c net.Conn, count func(int)) {
		b := make([]byte, 2048)
		for {
			n, err := c.Read(b)
			if err != nil {
				return // closed
			}
			count(n)
		}
	}
	all.Go(func() { read(grams, func(int) { x.gotGram.Add(1) }) })
	all.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // closed
			}
			all.Go(func() {
				defer context.AfterFunc(over, func() { _ = c.Close() })()
				read(c, func(n int) { x.came.Add(int64(n)) })
			})
		}
	})
}

// start starts a controller.
func (x *closNet) start(c network.Config) {
	x.t.Helper()
	c.Proactive = true
	x.n, x.stop = run(x.t, x.l, c, func(n *network.Network) { n.AddHandler(50, x.asked) })
}

func (x *closNet) on(host string, do func() error) {
	x.t.Helper()
	if err := x.l.Host(host).Do(do); err != nil {
		x.t.Fatal(err)
	}
}

// ruled waits until all switches together have so many rules by destination.
func (x *closNet) ruled(want int) {
	x.t.Helper()
	networktest.Eventually(x.t, fmt.Sprintf("%d rules by destination", want), func() bool { return x.rules() == want })
}

// revalidate waits until no switch uses a decision that it cached before its rules were written, such as
// the one to ask the controller.
func (x *closNet) revalidate() {
	x.t.Helper()
	for _, name := range []string{"leaf1", "leaf2", "spine1", "spine2", "spine3"} {
		if out, err := x.l.Switch(name).Appctl(x.t.Context(), "revalidator/wait"); err != nil {
			x.t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
}

func (x *closNet) rules() (n int) {
	for _, s := range x.n.Switches() {
		for _, r := range s.Rules() {
			if r.Owner == "multipath" && r.Confirmed {
				n++
			}
		}
	}
	return n
}

var txPackets = regexp.MustCompile(`port +(\d+): rx [^\n]*\n *tx pkts=(\d+)`)

// sent is how many packets leaf1 has sent to each spine.
func (x *closNet) sent() (out [3]int) {
	x.t.Helper()
	text, err := x.l.Switch("leaf1").Ofctl(x.t.Context(), "dump-ports")
	if err != nil {
		x.t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range txPackets.FindAllStringSubmatch(text, -1) {
		all[m[1]] = m[2]
	}
	for i := range out {
		port, err := x.l.Switch("leaf1").Port(fmt.Sprintf("leaf1-spine%d", i+1))
		if err != nil {
			x.t.Fatal(err)
		}
		if out[i], err = strconv.Atoi(all[strconv.Itoa(port)]); err != nil {
			x.t.Fatalf("port %d: %v:\n%s", port, err, text)
		}
	}
	return out
}

// way says by which spine a flow goes, of which send sends packets.
func (x *closNet) way(send func()) int {
	x.t.Helper()
	before := x.sent()
	send()
	after := x.sent()
	for spine := range after {
		if after[spine]-before[spine] >= closEach { // others have probes of links only
			return spine + 1
		}
	}
	x.t.Fatalf("a flow goes by no spine: %v, then %v", before, after)
	return 0
}

// ways says by which spine each connection goes.
func (x *closNet) ways() map[int]int {
	x.t.Helper()
	out := map[int]int{}
	for i, f := range x.flows {
		out[i] = x.way(func() {
			for range closEach { // each a segment of its own
				want := x.came.Load() + closSize
				if _, err := f.Write(make([]byte, closSize)); err != nil {
					x.t.Fatal(err)
				}
				x.arrived(want)
			}
		})
	}
	return out
}

// arrived waits until so much data of all connections has arrived.
func (x *closNet) arrived(want int64) {
	x.t.Helper()
	tick := time.NewTicker(time.Millisecond) // eventually would wait for longer than the data takes
	defer tick.Stop()
	for deadline := time.After(networktest.Timeout); x.came.Load() < want; {
		select {
		case <-tick.C:
		case <-deadline:
			x.t.Fatalf("of %d bytes %d have arrived", want, x.came.Load())
		}
	}
}

// differ says which flows go another way than before.
func differ(a, b map[int]int) (flows []int) {
	for f, spine := range a {
		if b[f] != spine {
			flows = append(flows, f)
		}
	}
	return flows
}

func by(ways map[int]int, spine int) (flows []int) {
	for f, s := range ways {
		if s == spine {
			flows = append(flows, f)
		}
	}
	return flows
}

func sameFlows(a, b []int) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// TestProactive has flows spread over all links, and asks no controller. When a link dies, near or
// far, only the flows that went by it go another way; when it is back they are where they were.
func TestProactive(t *testing.T) {
	t.Parallel()
	x := newClos(t, "netclos", network.Config{})
	at := x.ways()
	t.Logf("%d flows by three spines: %v %v %v", closFlows, by(at, 1), by(at, 2), by(at, 3))
	for spine := range 3 {
		if len(by(at, spine+1)) == 0 {
			t.Errorf("no flow goes by spine %d", spine+1)
		}
	}
	for _, link := range []string{"leaf1-spine2", "leaf2-spine2"} {
		if err := x.l.SetLink(t.Context(), link, false); err != nil {
			t.Fatal(err)
		}
		networktest.Eventually(t, link+" to be gone", func() bool { return len(x.n.Topology().Links) == 2*5 })
		x.ruled(5 * 4)
		networktest.Eventually(t, "leaf1 to leave it", func() bool { return !x.uses(2) })
		now := x.ways()
		if moved := differ(at, now); !sameFlows(moved, by(at, 2)) {
			t.Errorf("without %s the flows %v go another way, want those that went by it, %v", link, moved, by(at, 2))
		}
		if err := x.l.SetLink(t.Context(), link, true); err != nil {
			t.Fatal(err)
		}
		ready(t, x.n, 5, 6, 4)
		networktest.Eventually(t, "leaf1 to use it again", func() bool { return x.uses(2) })
		if moved := differ(at, x.ways()); len(moved) > 0 {
			t.Errorf("when %s is back, the flows %v go another way than before", link, moved)
		}
	}
	if n := x.asked.Load(); n != 0 {
		t.Errorf("%d packets of flows have come up to the controller", n)
	}
}

// uses says whether leaf1 has a bucket for a spine in the group by which it leads packets to h3.
func (x *closNet) uses(spine int) bool { return x.buckets()[spine-1] > 0 }

// buckets says how many of them leaf1 has for each spine in that group.
func (x *closNet) buckets() (out [3]int) {
	x.t.Helper()
	rules, err := x.l.Switch("leaf1").Ofctl(x.t.Context(), "dump-flows")
	if err != nil {
		x.t.Fatal(err)
	}
	for line := range strings.SplitSeq(rules, "\n") {
		m := regexp.MustCompile(`group:(\d+)`).FindStringSubmatch(line)
		if m == nil || !strings.Contains(line, "dl_dst="+openflow.MAC(x.l.Host("h3").MAC()).String()) {
			continue
		}
		group, err := x.l.Switch("leaf1").Ofctl(x.t.Context(), "dump-groups", m[1])
		if err != nil {
			x.t.Fatal(err)
		}
		for i := range out {
			port, err := x.l.Switch("leaf1").Port(fmt.Sprintf("leaf1-spine%d", i+1))
			if err != nil {
				x.t.Fatal(err)
			}
			out[i] = len(regexp.MustCompile(fmt.Sprintf(`output:%d\b`, port)).FindAllString(group, -1))
		}
		return out
	}
	return out
}

// TestProactiveUnequal has one of three links carry a third of what each of the others does: by
// capacity the way over it is longer, and it has as many connections fewer. Those of the others stay
// theirs when it is gone.
func TestProactiveUnequal(t *testing.T) {
	t.Parallel()
	capacities := map[network.PortRef]uint64{{Switch: 1, Port: 3}: 1e9, {Switch: 1, Port: 4}: 3e9, {Switch: 1, Port: 5}: 3e9}
	x := newClos(t, "netclosways", network.Config{ForwardMetric: topology.MetricCapacity, ForwardUnequal: true, Capacities: capacities})
	all := [3]int{9, 28, 27} // of 64
	networktest.Eventually(t, "all spines to be used as they can", func() bool { return x.buckets() == all })
	at := x.ways()
	t.Logf("%d flows by three spines: %v %v %v", closFlows, by(at, 1), by(at, 2), by(at, 3))
	if err := x.l.SetLink(t.Context(), "leaf1-spine1", false); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "leaf1 to leave the narrow link", func() bool { return !x.uses(1) })
	if now := x.buckets(); now[1]+now[2] != 64 {
		t.Errorf("%v buckets", now)
	}
	if moved := differ(at, x.ways()); !sameFlows(moved, by(at, 1)) {
		t.Errorf("the flows %v go another way, want %v", moved, by(at, 1))
	}
	if n := x.asked.Load(); n != 0 {
		t.Errorf("%d packets of flows have come up to the controller", n)
	}
}

// TestProactiveLosesNothing has a switch's connection cut and made again, and the controller
// started again: no packet is lost, none asks, and the flows stay where they are.
func TestProactiveLosesNothing(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	known := map[openflow.MAC]network.HostRecord{}
	c := restarting(1)
	c.Remember = func(_ context.Context, changed []network.HostNote) error {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range changed {
			known[n.MAC] = n.Record
		}
		return nil
	}
	x := newClos(t, "netclosback", c)
	at := x.ways()
	calm := func(when string) {
		t.Helper()
		if moved := differ(at, x.ways()); len(moved) > 0 {
			t.Errorf("%s the flows %v go another way than before", when, moved)
		}
		if n := x.asked.Load(); n != 0 {
			t.Errorf("%s %d packets of flows have come up to the controller", when, n)
		}
	}
	spine := fmt.Sprintf("spine%d", x.way(func() {
		want := x.gotGram.Load() + closEach
		for range closEach {
			if _, err := x.gram.Write(make([]byte, closSize)); err != nil {
				t.Fatal(err)
			}
		}
		networktest.Eventually(t, "the datagrams", func() bool { return x.gotGram.Load() >= want })
	}))
	sent := x.stream()
	vsctl(t, x.l, spine, "tcp:127.0.0.1:1")
	networktest.Eventually(t, spine+" to be away", func() bool { return len(x.n.Topology().Switches) == 4 })
	vsctl(t, x.l, spine, "tcp:"+x.l.ControllerAddr().String())
	ready(t, x.n, 5, 6, 4)
	sent.none("while " + spine + " had no controller")
	calm("after the connection of " + spine + " was cut")

	// A leaf comes back after all others are as they are to be: what they have for hosts behind it
	// is not removed meanwhile.
	sent = x.stream()
	vsctl(t, x.l, "leaf2", "tcp:127.0.0.1:1")
	x.stop()
	mu.Lock()
	again := restarting(2)
	again.Remembered = slices.Collect(maps.Values(known))
	mu.Unlock()
	x.start(again)
	networktest.Eventually(t, "rules to the hosts of leaf1", func() bool { return x.rules() == 4*2 })
	vsctl(t, x.l, "leaf2", "tcp:"+x.l.ControllerAddr().String())
	ready(t, x.n, 5, 6, 4)
	x.ruled(5 * 4)
	sent.none("while the controller was started again")
	calm("after the controller was started again")
}

func vsctl(t *testing.T, l *lab.Lab, sw, controller string) {
	t.Helper()
	if out, err := l.Switch(sw).Vsctl(t.Context(), "set-controller", "br0", controller); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// streaming sends 100 datagrams a second.
type streaming struct {
	x     *closNet
	had   int64
	stop  chan struct{}
	ended chan int64
}

func (x *closNet) stream() *streaming {
	s := &streaming{x: x, had: x.gotGram.Load(), stop: make(chan struct{}), ended: make(chan int64, 1)}
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := int64(0); ; i++ {
			select {
			case <-s.stop:
				s.ended <- i
				return
			case <-tick.C:
			}
			if _, err := x.gram.Write(make([]byte, closSize)); err != nil {
				s.ended <- i
				return
			}
		}
	}()
	return s
}

// none ends it: nothing may have been lost.
func (s *streaming) none(when string) {
	s.x.t.Helper()
	close(s.stop)
	sent := <-s.ended
	networktest.Eventually(s.x.t, fmt.Sprintf("all %d packets that were sent %s", sent, when), func() bool { return s.x.gotGram.Load()-s.had >= sent })
	s.x.t.Logf("%d packets were sent %s", sent, when)
}

// TestProactiveHostMoves has a host's addresses appear at another leaf.
func TestProactiveHostMoves(t *testing.T) {
	t.Parallel()
	x := newClos(t, "netclosmove", network.Config{})
	addr, mac := x.l.Host("h3").Addr(), openflow.MAC(x.l.Host("h3").MAC())
	old := interfaceOf(t, x.l, "h3", addr)
	sh(t, x.l, "h3", "ip", "addr", "flush", "dev", old)
	sh(t, x.l, "h3", "ip", "link", "set", old, "address", "02:00:00:00:00:77")
	now := interfaceOf(t, x.l, "h2", x.l.Host("h2").Addr())
	sh(t, x.l, "h2", "ip", "addr", "flush", "dev", now)
	sh(t, x.l, "h2", "ip", "link", "set", now, "address", mac.String())
	sh(t, x.l, "h2", "ip", "addr", "add", netip.PrefixFrom(addr, 24).String(), "dev", now)
	sh(t, x.l, "h2", "ping", "-n", "-c", "3", "-i", "0.2", "-W", "2", x.l.Host("h1").Addr().String())
	networktest.Eventually(t, "leaf1 to have the host at its own port", func() bool {
		rules, err := x.l.Switch("leaf1").Ofctl(t.Context(), "dump-flows")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(rules, "\n") {
			if strings.Contains(line, "dl_dst="+mac.String()) {
				return !strings.Contains(line, "group:")
			}
		}
		return false
	})
	ping(t, x.l, "h1", "h3") // by its address, which h2 has now
}
