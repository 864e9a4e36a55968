package network_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// handlerFunc is a handler made from a function.
type handlerFunc struct {
	name string
	f    func(*network.PacketIn) network.Verdict
}

func (h handlerFunc) Name() string                                       { return h.name }
func (h handlerFunc) HandlePacketIn(p *network.PacketIn) network.Verdict { return h.f(p) }

// outputs collects the packets that leave a fake switch.
type outputs struct {
	mu   sync.Mutex
	sent []uint32
	came chan struct{}
}

func newOutputs() *outputs { return &outputs{came: make(chan struct{}, 1000)} }

// take is the OnOutput of a fake switch. It ignores probes of links and loops.
func (o *outputs) take(port uint32, frame []byte) {
	if kind := binary.BigEndian.Uint16(frame[12:]); kind == packet.TypeLLDP || kind == discovery.LoopType {
		return
	}
	o.mu.Lock()
	o.sent = append(o.sent, port)
	o.mu.Unlock()
	o.came <- struct{}{}
}

// next waits for the next count outputs.
func (o *outputs) next(t *testing.T, count int) []uint32 {
	t.Helper()
	for range count {
		select {
		case <-o.came:
		case <-time.After(networktest.Timeout):
			t.Fatalf("waited in vain for %d outputs, have %v", count, o.sent)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	got := slices.Clone(o.sent)
	o.sent = nil
	slices.Sort(got)
	return got
}

func receive(t *testing.T, s *fake.Switch, port uint32, f []byte) {
	t.Helper()
	if _, err := s.Receive(port, f); err != nil {
		t.Fatal(err)
	}
}

func TestForwardingLearnsAndInstallsRules(t *testing.T) {
	out := newOutputs()
	n, stop := networktest.Start(t, network.Config{Generation: 1})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 3, OnOutput: out.take})
	cut := networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 3)
	receive(t, s, 1, networktest.Frame(1, 2))
	if got := out.next(t, 2); !slices.Equal(got, []uint32{2, 3}) {
		t.Fatalf("a packet to an unknown host goes to %v, want 2 and 3", got)
	}
	receive(t, s, 2, networktest.Frame(2, 1))
	if got := out.next(t, 1); !slices.Equal(got, []uint32{1}) {
		t.Fatalf("the answer goes to %v, want 1", got)
	}
	h, ok := n.HostByMAC(networktest.HostMAC(2), 0)
	if !ok || h.At != (network.PortRef{Switch: 1, Port: 2}) {
		t.Fatalf("host 2 is held as %+v", h)
	}
	r, _ := s.Receive(2, networktest.Frame(2, 1))
	if !slices.Equal(r.Ports(), []uint32{1}) {
		t.Fatalf("there is no rule for the answer: the next goes to %v", r.Ports())
	}
	sw, _ := n.Switch(1)
	if got := sw.Stats().ForwardRules; got != 1 {
		t.Errorf("%d rules of default forwarding, want 1", got)
	}

	// A new controller adopts the rule and sends nothing for it.
	stop()
	cut()
	n, _ = networktest.Start(t, network.Config{Generation: 2})
	before := s.FlowMods()
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 3)
	sw, _ = n.Switch(1)
	if sent, got := s.FlowMods()-before, sw.Stats().ForwardRules; sent != 0 || got != 1 {
		t.Errorf("after a restart %d flow-mods were sent and %d rules are held, want 0 and 1", sent, got)
	}
	// The port that it leads to goes down: the rule must be deleted.
	if err := s.SetPort(1, false); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "the adopted rule to be deleted", func() bool { return sw.Stats().ForwardRules == 0 })
}

func TestServicesAreAskedInOrder(t *testing.T) {
	asked := make(chan string, 10)
	add := func(n *network.Network, priority int, name string, v network.Verdict) {
		n.AddHandler(priority, handlerFunc{name, func(*network.PacketIn) network.Verdict {
			asked <- name
			return v
		}})
	}
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) {
		add(n, 300, "third", network.Stop)
		add(n, 100, "first", network.Continue)
		add(n, 310, "never", network.Stop)
		add(n, 200, "second", network.Continue)
	})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2})
	networktest.Connect(t, n, s, 1)
	want := []string{"discovery", "hosts", "first", "second", "third", "never", "forwarding"}
	if got := n.Handlers(); !slices.Equal(got, want) {
		t.Errorf("the chain is %v, want %v", got, want)
	}
	receive(t, s, 1, networktest.Frame(1, 2))
	receive(t, s, 1, networktest.Frame(1, 2))
	for _, name := range []string{"first", "second", "third", "first", "second", "third"} {
		select {
		case got := <-asked:
			if got != name {
				t.Errorf("%q was asked, want %q", got, name)
			}
		case <-time.After(networktest.Timeout):
			t.Fatalf("%q was not asked", name)
		}
	}
}

// hold returns a network with a service that holds every packet of host 1.
func hold(t *testing.T, c network.Config, d time.Duration) (*network.Network, *fake.Switch, *outputs, chan *network.Held, chan error) {
	t.Helper()
	held, refused := make(chan *network.Held, 100), make(chan error, 100)
	n, _ := networktest.Start(t, c, func(n *network.Network) {
		n.AddHandler(100, handlerFunc{"holder", func(p *network.PacketIn) network.Verdict {
			if p.Headers.EthSrc != networktest.HostMAC(1) {
				return network.Continue
			}
			h, err := p.Hold(d)
			if err != nil {
				refused <- err
				return network.Continue
			}
			held <- h
			return network.Stop
		}})
	})
	out := newOutputs()
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 3, OnOutput: out.take})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 3)
	return n, s, out, held, refused
}

func TestHeldPacketsGoOnTheirWay(t *testing.T) {
	t.Parallel()
	t.Run("released through the flow table", func(t *testing.T) {
		_, s, out, held, _ := hold(t, network.Config{}, time.Minute)
		receive(t, s, 1, networktest.Frame(1, 2))
		h := <-held
		m := openflow.NewFlowMod(openflow.FlowAdd, 0, 60000, openflow.MustMatch(openflow.InPort(1)), openflow.ApplyActions(openflow.Output(3)))
		if _, e := s.Table().Flow(m); e != nil {
			t.Fatal(e)
		}
		if err := errors.Join(h.Release(), h.Release()); err != nil {
			t.Fatal(err)
		}
		if got := out.next(t, 1); !slices.Equal(got, []uint32{3}) {
			t.Errorf("the packet went to %v, want 3", got)
		}
	})
	t.Run("forwarded", func(t *testing.T) {
		_, s, out, held, _ := hold(t, network.Config{}, time.Minute)
		receive(t, s, 1, networktest.Frame(1, 2))
		if err := (<-held).Forward(); err != nil {
			t.Fatal(err)
		}
		if got := out.next(t, 2); !slices.Equal(got, []uint32{2, 3}) {
			t.Errorf("the packet went to %v, want 2 and 3", got)
		}
	})
	t.Run("forwarded when the time is over", func(t *testing.T) {
		n, s, out, _, _ := hold(t, network.Config{}, 30*time.Millisecond)
		receive(t, s, 1, networktest.Frame(1, 2))
		out.next(t, 2)
		if sw, _ := n.Switch(1); sw.Stats().Held != 0 {
			t.Error("a packet is still held")
		}
	})
	t.Run("bounded in number", func(t *testing.T) {
		n, s, out, held, refused := hold(t, network.Config{HoldLimit: 2}, time.Minute)
		for range 3 {
			receive(t, s, 1, networktest.Frame(1, 2))
		}
		if err := <-refused; !errors.Is(err, network.ErrBusy) {
			t.Errorf("the third packet is refused by %v, want ErrBusy", err)
		}
		out.next(t, 2) // it was forwarded
		(<-held).Drop()
		if sw, _ := n.Switch(1); sw.Stats().Held != 1 {
			t.Errorf("%d packets are held, want 1", sw.Stats().Held)
		}
	})
}

// certificate returns a self-signed certificate for both ends.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pool.AddCert(c)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLSAsksSwitchesForCertificates(t *testing.T) {
	cert, pool := certificate(t)
	var o *network.Owner
	config := network.Config{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}, RequestTimeout: 2 * time.Second}
	n, _ := networktest.Start(t, config, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	dialTLS := func(c *tls.Config) net.Conn {
		conn, err := tls.Dial("tcp", n.Addr()[0].String(), c)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ended(t, "a switch without a certificate", dialTLS(&tls.Config{RootCAs: pool}))
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2})
	conn := dialTLS(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}})
	networktest.Background(t, func(ctx context.Context) error { return s.Run(ctx, conn) })
	networktest.Up(t, n, 1)
	networktest.Apply(t, o, "k", networktest.Program(networktest.TCPTo(1, 80, 1)), network.ApplyOptions{})
	networktest.WantRules(t, s, map[uint16]uint32{80: 1})
}

func TestRoleIsAskedFor(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{Role: openflow.RoleMaster})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2})
	networktest.Connect(t, n, s, 1)
	if sw, _ := n.Switch(1); sw.Role() != openflow.RoleMaster {
		t.Errorf("the role is %v, want master", sw.Role())
	}
}

func TestCapabilitiesComeFromTheSwitchOrTheOperator(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{Overrides: map[openflow.DatapathID]network.Override{2: {L2Rewrite: true, NoBundles: true}}})
	for d := range openflow.DatapathID(3) {
		networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: d + 1, Ports: 2, NoBundles: d == 2, NoTableFeatures: d == 2}), d+1)
	}
	for d, want := range map[openflow.DatapathID]struct{ ip, bundles bool }{1: {true, true}, 2: {false, false}, 3: {true, false}} {
		sw, _ := n.Switch(d)
		c := sw.Capabilities()
		if c.CanSet(openflow.FieldIPv4Dst) != want.ip || c.Bundles != want.bundles || !c.CanSet(openflow.FieldEthDst) || !c.CanMatch(openflow.FieldTCPFlags) {
			t.Errorf("switch %v: sets IP %v, bundles %v, want %+v", d, c.CanSet(openflow.FieldIPv4Dst), c.Bundles, want)
		}
	}
}
