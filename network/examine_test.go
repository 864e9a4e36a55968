package network_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// cable carries frames from port 2 of one fake switch to port 2 of the other, with the faults that
// a real cable may have.
type cable struct {
	spoil  atomic.Pointer[func(frame []byte) [][]byte]
	probes atomic.Int64 // link probes, carried or lost
}

func (c *cable) carry(to *fake.Switch, frame []byte) {
	var h packet.Headers
	_ = h.Parse(frame) // only the addresses matter
	if linkprobe.Is(h.EthSrc) {
		c.probes.Add(1)
	}
	frames := [][]byte{frame}
	if f := c.spoil.Load(); f != nil {
		frames = (*f)(frame)
	}
	for _, f := range frames {
		_, _ = to.Receive(2, f) // a switch that is not connected loses it
	}
}

// joined runs two fake switches with a cable for each direction between their ports 2.
func joined(t *testing.T, n *network.Network, options ...fake.Options) (switches [2]*fake.Switch, cables [2]*cable) {
	t.Helper()
	for i := range switches {
		cables[i] = new(cable)
		var o fake.Options
		if i < len(options) {
			o = options[i]
		}
		o.DPID, o.Ports = openflow.DatapathID(i+1), 2
		o.OnOutput = func(port uint32, frame []byte) {
			if port == 2 {
				cables[i].carry(switches[1-i], frame)
			}
		}
		switches[i] = fake.NewSwitch(o)
	}
	for i, s := range switches {
		networktest.Connect(t, n, s, openflow.DatapathID(i+1))
	}
	networktest.Eventually(t, "both directions of the link are known", func() bool { return len(n.Topology().Links) == 2 })
	return switches, cables
}

// loopType is the Ethernet type of loop probes.
const loopType = discovery.LoopType

// TestFaultsOfLinksAreFound checks that faults which only hardware causes are found, named and
// located; that a sound link has no finding; and that no link is sent more than 100 frames.
func TestFaultsOfLinksAreFound(t *testing.T) {
	t.Parallel()
	discovery := func(f []byte) bool { return be16(f[12:]) == packet.TypeLLDP || be16(f[12:]) == loopType }
	losing := func(lost func(f []byte, h packet.Headers) bool) func([]byte) [][]byte {
		return func(f []byte) [][]byte {
			if h, _ := packet.Parse(f); !discovery(f) && lost(f, h) {
				return nil
			}
			return [][]byte{f}
		}
	}
	for name, tt := range map[string]struct {
		spoil func([]byte) [][]byte // of the way from switch 1 to 2
		want  string
	}{
		"sound":       {nil, ""},
		"one way":     {func([]byte) [][]byte { return nil }, "one-way 1/2-2/2"},
		"18 bytes":    {losing(func(f []byte, _ packet.Headers) bool { return len(f) > 60 }), "large 1/2-2/2"},
		"MTU of 1400": {losing(func(f []byte, _ packet.Headers) bool { return len(f) > 1414 }), "small-mtu 1/2-2/2"},
		"no ARP":      {losing(func(_ []byte, h packet.Headers) bool { return h.Has(packet.ARP) }), "kinds 1/2-2/2"},
		"no DF":       {losing(func(f []byte, h packet.Headers) bool { return h.Has(packet.TCP) && f[20]&0x40 != 0 }), "kinds 1/2-2/2"},
		"cut": {func(f []byte) [][]byte {
			if len(f) > 500 {
				f = f[:len(f)-192]
			}
			return [][]byte{f}
		}, "cut 1/2-2/2"},
		"tags removed": {func(f []byte) [][]byte {
			if be16(f[12:]) == packet.TypeVLAN {
				f = append(bytes.Clone(f[:12]), f[16:]...)
			}
			return [][]byte{f}
		}, "tag-removed 1/2-2/2"},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := networktest.Start(t, network.Config{})
			_, cables := joined(t, n)
			if tt.spoil != nil {
				cables[0].spoil.Store(&tt.spoil)
			}
			r := networktest.Diagnose(t, n, linkprobe.DefaultMTU)
			if got := networktest.Faults(r); got != tt.want {
				t.Errorf("got %q, want %q: %+v", got, tt.want, r.Findings)
			}
			sent := cables[0].probes.Load() + cables[1].probes.Load()
			if sent > 100 || sent != int64(r.Frames) || r.MostFrames != r.Frames || r.Links != 1 {
				t.Errorf("%d probes were on the link; the report: %+v", sent, r)
			}
			t.Logf("%d frames: %s", sent, networktest.Faults(r))
		})
	}
}

func be16(b []byte) int { return int(b[0])<<8 | int(b[1]) }

// TestExaminationDisturbsNothing checks that an examination leaves nothing behind, teaches the
// host table nothing, and does not run twice at once.
func TestExaminationDisturbsNothing(t *testing.T) {
	t.Parallel()
	seen := make(seenHandler, 1000)
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { n.AddHandler(rule.ChainHosts+1, seen) })
	switches, cables := joined(t, n)
	for i := range switches {
		networktest.Edges(t, n, openflow.DatapathID(i+1), 1)
	}
	before := len(switches[0].Table().Entries()) + len(switches[1].Table().Entries())
	hold := make(chan struct{})
	held := func(f []byte) [][]byte { <-hold; return [][]byte{f} }
	cables[0].spoil.Store(&held)
	if _, err := n.Doctor().Diagnose(linkprobe.DefaultMTU); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Doctor().Diagnose(linkprobe.DefaultMTU); err == nil {
		t.Error("a second examination began beside the first")
	}
	close(hold)
	networktest.Eventually(t, "the examination to end", func() bool { r, _ := n.Doctor().Diagnosis(); return !r.Ended.IsZero() })
	if r := networktest.Diagnose(t, n, 9000); networktest.Faults(r) != "" {
		t.Errorf("the link is sound: %+v", r.Findings)
	}
	if after := len(switches[0].Table().Entries()) + len(switches[1].Table().Entries()); after != before {
		t.Errorf("%d rules afterwards, %d before", after, before)
	}
	if hosts := n.Hosts(); len(hosts) > 0 {
		t.Errorf("hosts were learned: %v", hosts)
	}
	// Frames that arrive after the examination, and frames of others with such an address.
	late := packet.AppendARPRequest(nil, openflow.MAC{0x02, 0x51, 0x1c, 0x70, 1, 2}, netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.1"), 0)
	if _, err := switches[0].Receive(1, late); err != nil {
		t.Fatal(err)
	}
	if _, err := switches[0].Receive(1, networktest.Frame(1, 2)); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != networktest.HostMAC(1) {
		t.Errorf("services were asked about a packet of %v", got)
	}
}

// seenHandler receives the senders of the packets that services are asked about.
type seenHandler chan openflow.MAC

func (seenHandler) Name() string { return "seen" }

func (s seenHandler) HandlePacketIn(p *network.PacketIn) network.Verdict {
	select {
	case s <- p.Headers.EthSrc:
	default:
	}
	return network.Continue
}

// TestLinkThatGoesAwayIsNotJudged checks that a link is not judged if one of its ends goes down.
func TestLinkThatGoesAwayIsNotJudged(t *testing.T) {
	t.Parallel()
	n, _ := networktest.Start(t, network.Config{})
	switches, cables := joined(t, n)
	gone := func([]byte) [][]byte { return nil }
	cables[0].spoil.Store(&gone)
	if _, err := n.Doctor().Diagnose(linkprobe.DefaultMTU); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "probes to be under way", func() bool { return cables[0].probes.Load() > 0 })
	if err := switches[1].SetPort(2, false); err != nil {
		t.Fatal(err)
	}
	var r diagnosis.Report
	networktest.Eventually(t, "the examination to end", func() bool { r, _ = n.Doctor().Diagnosis(); return !r.Ended.IsZero() })
	if got := networktest.Faults(r); got != "unexamined 1/2-2/2" {
		t.Errorf("got %q: %+v", got, r)
	}
}

// TestHostInTwoVLANsIsFound checks that a host which a translating circuit shows in two VLANs at
// two places is reported, and that a router in two VLANs behind one port is not.
func TestHostInTwoVLANsIsFound(t *testing.T) {
	t.Parallel()
	n, _ := networktest.Start(t, network.Config{})
	switches, _ := joined(t, n)
	for i := range switches {
		networktest.Edges(t, n, openflow.DatapathID(i+1), 1)
	}
	claim := func(s *fake.Switch, host int, vlan uint16) {
		if _, err := s.Receive(1, packet.AppendARPRequest(nil, networktest.HostMAC(host), networktest.HostAddr(host).Addr(), networktest.HostAddr(99).Addr(), vlan)); err != nil {
			t.Fatal(err)
		}
	}
	claim(switches[0], 1, 10)
	claim(switches[0], 2, 10)
	claim(switches[0], 2, 20)
	networktest.Eventually(t, "the hosts to be known", func() bool { return len(n.Hosts()) == 3 })
	if got := networktest.Faults(networktest.Diagnose(t, n, linkprobe.DefaultMTU)); got != "" {
		t.Errorf("before: %s", got)
	}
	claim(switches[1], 1, 20)
	networktest.Eventually(t, "the host to be known in both VLANs", func() bool { return len(n.Hosts()) == 4 })
	r := networktest.Diagnose(t, n, linkprobe.DefaultMTU)
	if len(r.Findings) != 1 || r.Findings[0].Fault != diagnosis.TwoVLANs || !strings.Contains(r.Findings[0].Found, networktest.HostMAC(1).String()) {
		t.Errorf("%+v", r.Findings)
	}
}

// TestFaultsOfTablesAreFound checks that a foreign rule with precedence over the controller's is
// found, and a table that is nearly full.
func TestFaultsOfTablesAreFound(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{})
	switches, _ := joined(t, n)
	if r := networktest.Diagnose(t, n, linkprobe.DefaultMTU); len(r.Findings) > 0 {
		t.Fatalf("sound tables: %+v", r.Findings)
	}
	others := func(s *fake.Switch, port uint32, priority uint16) {
		m := &openflow.FlowMod{Command: openflow.FlowAdd, Priority: priority, Cookie: 0x1234, Match: openflow.MustMatch(openflow.InPort(port)), BufferID: openflow.NoBuffer}
		if _, err := s.Table().Flow(m); err != nil {
			t.Fatal(err)
		}
	}
	others(switches[0], 1, 65535)
	for i := range uint32(20) {
		others(switches[1], 100+i, 0)
	}
	switches[1].Table().SetLimit(len(switches[1].Table().Entries()) + 1)
	r := networktest.Diagnose(t, n, linkprobe.DefaultMTU)
	if got := networktest.Faults(r); got != "foreign-rules 1/0, table-full 2/0" {
		t.Errorf("found %q: %+v", got, r.Findings)
	}
}

// TestFaultsOfCountersAreFound checks that counters which do not change are reported, and packets
// that a switch does not send to the controller, and where frames are lost.
func TestFaultsOfCountersAreFound(t *testing.T) {
	t.Parallel()
	noARP := func(f []byte) [][]byte {
		if h, _ := packet.Parse(f); h.Has(packet.ARP) {
			return nil
		}
		return [][]byte{f}
	}
	for name, tt := range map[string]struct {
		other fake.Options // of switch 2
		spoil func([]byte) [][]byte
		want  string
		says  string
	}{
		"counters that stand still": {fake.Options{PortStats: func() []openflow.PortStats { return []openflow.PortStats{{Port: 1}, {Port: 2}} }}, nil, "uncounted 1/2-2/2, uncounted 2/2-1/2", "counted none"},
		"punts that are not sent": {fake.Options{KeepsPunt: func(in *openflow.PacketIn) bool {
			h, _ := packet.Parse(in.Data)
			return h.Has(packet.ARP)
		}}, nil, "kinds 1/2-2/2, punts-lost 1/2-2/2", "to hand in"},
		"lost in between": {fake.Options{}, noARP, "kinds 1/2-2/2", "lost in between"},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := networktest.Start(t, network.Config{})
			_, cables := joined(t, n, fake.Options{}, tt.other)
			if tt.spoil != nil {
				cables[0].spoil.Store(&tt.spoil)
			}
			r := networktest.Diagnose(t, n, linkprobe.DefaultMTU)
			if got := networktest.Faults(r); got != tt.want || !strings.Contains(fmt.Sprint(r.Findings), tt.says) {
				t.Errorf("found %q, want %q that says %q: %+v", got, tt.want, tt.says, r.Findings)
			}
		})
	}
}

// TestFaultsOfRewritingAreFound checks that a switch is reported that rewrites addresses by its
// processor, wrongly or not at all, and that a sound one is not.
func TestFaultsOfRewritingAreFound(t *testing.T) {
	t.Parallel()
	rewrittenTo := openflow.MAC{0x02, 0x51, 0x1c, 0x71, 0, 2}
	is := func(f []byte) bool { return openflow.MAC(f[:6]) == rewrittenTo }
	var far atomic.Pointer[fake.Switch]
	for name, tt := range map[string]struct {
		spoil func([]byte) [][]byte // what switch 1 does to frames that leave it
		want  string
	}{
		"lost": {func(f []byte) [][]byte {
			if is(f) {
				return nil
			}
			return [][]byte{f}
		}, "rewrite-lost 1/0"},
		"a checksum that is not made again": {func(f []byte) [][]byte {
			if is(f) {
				f = bytes.Clone(f)
				f[24] ^= 0x55
			}
			return [][]byte{f}
		}, "rewrite-wrong 1/0"},
		"by the processor": {func(f []byte) [][]byte {
			if !is(f) {
				return [][]byte{f}
			}
			f = bytes.Clone(f)
			time.AfterFunc(50*time.Millisecond, func() { _, _ = far.Load().Receive(2, f) })
			return nil
		}, "rewrite-slow 1/0"},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := networktest.Start(t, network.Config{})
			switches, cables := joined(t, n)
			far.Store(switches[1])
			cables[0].spoil.Store(&tt.spoil)
			r := networktest.Diagnose(t, n, linkprobe.DefaultMTU)
			if got := networktest.Faults(r); got != tt.want || r.MostFrames > 100 {
				t.Errorf("found %q with %d frames, want %q: %+v", got, r.MostFrames, tt.want, r.Findings)
			}
		})
	}
}
