package lab_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// transfer sends random bytes over TCP between two hosts and compares the SHA-256 of both ends.
func transfer(t *testing.T, from, to *lab.LiveHost, addr string, size int64) {
	t.Helper()
	transferBy(t, from, to, addr, addr, size)
}

// transferBy does what transfer does, with a server that listens at one address and is dialled at
// another.
func transferBy(t *testing.T, from, to *lab.LiveHost, addr, dial string, size int64) {
	t.Helper()
	var listener net.Listener
	if err := to.Do(func() (err error) { listener, err = net.Listen("tcp", net.JoinHostPort(addr, "0")); return err }); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	type result struct {
		sum [sha256.Size]byte
		err error
	}
	received := make(chan result, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			received <- result{err: err}
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
		h := sha256.New()
		_, err = io.Copy(h, conn)
		received <- result{[sha256.Size]byte(h.Sum(nil)), err}
	}()
	var conn net.Conn
	err := from.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", net.JoinHostPort(dial, itoa(listener.Addr().(*net.TCPAddr).Port)), time.Minute)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	h := sha256.New()
	source := io.LimitReader(rand.NewChaCha8([32]byte{1}), size)
	n, err := io.Copy(conn, io.TeeReader(source, h))
	if err = errors.Join(err, conn.Close()); err != nil || n != size {
		t.Fatalf("sent %d of %d bytes: %v", n, size, err)
	}
	if got := <-received; got.err != nil || got.sum != [sha256.Size]byte(h.Sum(nil)) {
		t.Errorf("from %s to %s: not what was sent: %v", from.Name(), to.Name(), got.err)
	}
}

// TestFramesSurviveEveryKind sends real data over every kind of path between two nodes. An
// incomplete checksum or a super-packet at a switch would stop it.
func TestFramesSurviveEveryKind(t *testing.T) {
	t.Parallel()
	for _, o := range []lab.WANOptions{{MTU: 1500}, {MTU: 9000}, {MTU: 1500, Offload: true}} {
		t.Run(fmt.Sprintf("MTU %d, offload %v", o.MTU, o.Offload), func(t *testing.T) {
			t.Parallel()
			o.Rate, o.RTT, o.Loss = 500e6, 10*time.Millisecond, 0.001
			topology := lab.WAN("kinds", o)
			// The link of this host is shaped, so its other end is a switch's port in the delay
			// line.
			far := lab.Both("far", "s1", delayline.Params{Delay: time.Millisecond, Loss: 0.001})
			far.MTU = o.MTU
			topology.Hosts = append(topology.Hosts, lab.Host{Name: "far"})
			topology.Links = append(topology.Links, far)
			l := lab.New(t, topology)
			forwardAsBridge(t, l, "s1", "s2")
			client, server, other := l.Host("client"), l.Host("server"), l.Host("far")
			for _, ways := range [][2]*lab.LiveHost{{client, server}, {server, client}, {other, server}, {server, other}, {client, other}} {
				transfer(t, ways[0], ways[1], ways[1].Addr().String(), 2e6)
				transfer(t, ways[0], ways[1], ways[1].Addr6().String(), 2e6)
			}
		})
	}
}

// TestRewritingSwitches sends data to an address that only the switches know, and which they
// rewrite as SOS does, with and without offload. It checks that rewriting does not damage
// incomplete checksums.
func TestRewritingSwitches(t *testing.T) {
	t.Parallel()
	const alias = "10.0.0.77"
	for _, offload := range []bool{false, true} {
		t.Run(fmt.Sprintf("offload %v", offload), func(t *testing.T) {
			t.Parallel()
			l := lab.New(t, lab.WAN("rewrite", lab.WANOptions{Rate: 500e6, RTT: 4 * time.Millisecond, Loss: 0.002, Offload: offload}))
			forwardAsBridge(t, l, "s2")
			client, server, ctx := l.Host("client"), l.Host("server"), testContext(t)
			mac := server.MAC()
			for _, flow := range []string{
				"priority=2,in_port=1,tcp,nw_dst=" + alias + ",actions=set_field:" + server.Addr().String() + "->ip_dst,output:3",
				"priority=2,in_port=3,tcp,nw_src=" + server.Addr().String() + ",actions=set_field:" + alias + "->ip_src,output:1",
				"priority=1,actions=NORMAL",
			} {
				if _, err := l.Switch("s1").Ofctl(ctx, "add-flow", flow); err != nil {
					t.Fatal(err)
				}
			}
			output(t, client, "ip", "neigh", "add", alias, "lladdr", net.HardwareAddr(mac[:]).String(), "dev", "eth0")
			transferBy(t, client, server, server.Addr().String(), alias, 10e6)
		})
	}
}

func TestHostToHostKeepsData(t *testing.T) {
	t.Parallel()
	l := lab.New(t, pair(delayline.Params{Rate: 1e9, Delay: 2 * time.Millisecond, Loss: 0.002}))
	h1, h2 := l.Host("h1"), l.Host("h2")
	transfer(t, h1, h2, h2.Addr().String(), 10e6)
	transfer(t, h2, h1, h1.Addr6().String(), 10e6)
}

// TestShapesCarryTraffic builds the topologies that are not one bridge, and sends data from client
// to server and between the agents.
func TestShapesCarryTraffic(t *testing.T) {
	t.Parallel()
	o := lab.WANOptions{Rate: 200e6, RTT: 10 * time.Millisecond, Loss: -1}
	link := delayline.Params{Rate: 100e6, Delay: 2 * time.Millisecond}
	for _, topology := range []lab.Topology{
		lab.LimitedWAN("limited", o), lab.Islands("islands", o), lab.Routed("routed", o), lab.VLANWAN("vlan", o),
	} {
		t.Run(topology.Name, func(t *testing.T) {
			t.Parallel()
			l := lab.New(t, topology)
			bridges := []string{"s1", "s2"}
			if topology.Name == "limited" {
				bridges = append(bridges, "xs", "ys")
			}
			forwardAsBridge(t, l, bridges...)
			client, server, x, y := l.Host("client"), l.Host("server"), l.Host("x"), l.Host("y")
			for _, ways := range [][2]*lab.LiveHost{{client, server}, {x, y}, {client, x}} {
				transfer(t, ways[0], ways[1], ways[1].Addr().String(), 1e6)
				transfer(t, ways[0], ways[1], ways[1].Addr6().String(), 1e6)
			}
		})
	}
	t.Run("two-path", func(t *testing.T) {
		t.Parallel()
		l := lab.New(t, lab.TwoPathWAN("two", link, link))
		for _, rule := range [][2]string{
			{"s1", "in_port=1,actions=output:3"},
			{"s1", "in_port=4,actions=output:1"},
			{"m1", "actions=ALL"},
			{"m2", "actions=ALL"},
			{"s2", "in_port=1,actions=output:3"},
			{"s2", "in_port=3,actions=output:2"},
		} {
			if _, err := l.Switch(rule[0]).Ofctl(testContext(t), "add-flow", rule[1]); err != nil {
				t.Fatal(err)
			}
		}
		transfer(t, l.Host("client"), l.Host("server"), l.Host("server").Addr().String(), 1e6) // The request goes by m1, the answer by m2.
		for _, name := range []string{"path1", "path2"} {
			st, err := l.Link(name).Stats(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if st.AtoB.Stats.DeliveredPackets+st.BtoA.Stats.DeliveredPackets < 20 {
				t.Errorf("%s carried nothing of the connection: %+v", name, st)
			}
		}
	})
}

func TestLimitedHardwareIsChecked(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.LimitedWAN("limited", lab.WANOptions{Loss: -1}))
	s1, ctx := l.Switch("s1"), testContext(t)
	add := func(flow string) {
		t.Helper()
		if _, err := s1.Ofctl(ctx, "add-flow", flow); err != nil {
			t.Fatal(err)
		}
	}
	add("in_port=1,actions=set_field:02:00:00:00:00:01->eth_dst,output:2")
	if err := s1.CheckCapabilities(ctx); err != nil {
		t.Error(err)
	}
	add("in_port=2,ip,actions=set_field:10.0.0.9->ip_dst,output:1")
	if err := s1.CheckCapabilities(ctx); err == nil || !strings.Contains(err.Error(), "ip_dst") {
		t.Errorf("a rule beyond the hardware went unseen: %v", err)
	}
}

func TestCablesComeAndGo(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.WAN("cables", lab.WANOptions{RTT: 4 * time.Millisecond, Loss: -1}))
	forwardAsBridge(t, l, "s1", "s2")
	client, server := l.Host("client"), l.Host("server")
	reaches := func() bool {
		return client.Command(testContext(t), "ping", "-c", "1", "-W", "1", server.Addr().String()).Run() == nil
	}
	for _, link := range []string{"wan", "client-s1"} {
		port, err := l.Switch("s1").Port(link)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the network", reaches)
		if err := l.SetLink(testContext(t), link, false); err != nil {
			t.Fatal(err)
		}
		if reaches() {
			t.Errorf("%s is down and carries traffic", link)
		}
		waitFor(t, "the switch to see the cable gone", func() bool { return linkDown(t, l, "s1", port) })
		if err := l.SetLink(testContext(t), link, true); err != nil {
			t.Fatal(err)
		}
		waitFor(t, link+" to carry again", reaches)
		waitFor(t, "the switch to see the cable back", func() bool { return !linkDown(t, l, "s1", port) })
	}
}

// linkDown reports whether the switch sees a port's link down.
func linkDown(t *testing.T, l *lab.Lab, name string, port int) bool {
	t.Helper()
	s := l.Switch(name)
	out, err := s.Vsctl(testContext(t), "--bare", "--columns=link_state,admin_state", "find", "Interface", "ofport="+itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(out, "down")
}

func TestSwitchStopsAndStarts(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Line("line", 2, delayline.Params{}))
	forwardAsBridge(t, l, "s1", "s2")
	h1, h2, ctx := l.Host("h1"), l.Host("h2"), testContext(t)
	reaches := func() bool {
		return h1.Command(ctx, "ping", "-c", "1", "-W", "1", h2.Addr().String()).Run() == nil
	}
	waitFor(t, "the network", reaches)
	for name, end := range map[string]func(context.Context) error{"stopped": l.Switch("s2").Stop, "killed": l.Switch("s2").Kill} {
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		if reaches() {
			t.Errorf("a switch that is %s forwards", name)
		}
		if err := l.Switch("s2").Start(ctx); err != nil {
			t.Fatal(err)
		}
		if flows, err := l.Switch("s2").Ofctl(ctx, "dump-flows"); err != nil || strings.Contains(flows, "NORMAL") {
			t.Errorf("a switch that was %s has its old rules: %v %s", name, err, flows)
		}
		forwardAsBridge(t, l, "s2")
		waitFor(t, "the network after the restart", reaches)
	}
}

// TestControllerInProcess runs the simplest controller in this process: the switches connect to a
// listener inside the control namespace.
func TestControllerInProcess(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.WAN("control", lab.WANOptions{}))
	listener, err := l.Control().Listen("tcp", l.ControllerAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for range 2 {
		if err := listener.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		hello := make([]byte, 8)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(conn, hello); err != nil || hello[0] != 4 || hello[1] != 0 {
			t.Errorf("%v: the first message is % x, want an OpenFlow 1.3 hello: %v", conn.RemoteAddr(), hello, err)
		}
		_ = conn.Close()
	}
	agentControl(t, l)
}

// agentControl checks that an agent can be reached from the control network.
func agentControl(t *testing.T, l *lab.Lab) {
	t.Helper()
	x := l.Host("x")
	var agent net.Listener
	err := x.Do(func() (err error) {
		agent, err = net.Listen("tcp", net.JoinHostPort(x.ControlAddr().String(), "8443"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	conn, err := l.Control().DialContext(testContext(t), "tcp", agent.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if _, err := l.Control().DialContext(testContext(t), "tcp", "localhost:1"); err == nil {
		t.Error("dialled a name, which cannot be looked up inside a namespace")
	}
}

func TestLabsSideBySide(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	labs := make([]*lab.Lab, 3)
	for i := range labs {
		labs[i] = lab.New(t, lab.WAN("side", lab.WANOptions{RTT: time.Duration(10*(i+1)) * time.Millisecond, Loss: -1}))
		forwardAsBridge(t, labs[i], "s1", "s2")
	}
	for i, l := range labs {
		wg.Go(func() {
			want := time.Duration(10*(i+1)) * time.Millisecond
			out, err := l.Host("client").Command(context.Background(), "ping", "-c", "5", "-i", "0.1", "-W", "3", l.Host("server").Addr().String()).Output()
			if err != nil || strings.Count(string(out), "time=") != 5 {
				t.Errorf("lab %d with %v: %v\n%s", i, want, err, out)
			}
		})
	}
	wg.Wait()
}
