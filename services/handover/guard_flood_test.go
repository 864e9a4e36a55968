package handover

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

func TestFloods(t *testing.T) {
	here, there := ref(3, 1), ref(4, 1)
	type step struct {
		after    time.Duration
		at       network.PortRef
		messages int
		admitted int
		first    bool // a flood begins
	}
	for name, steps := range map[string][]step{
		"few":                 {{0, here, 10, 10, false}},
		"as many as may come": {{0, here, strangerBurst, strangerBurst, false}},
		"a flood":             {{0, here, 10 * strangerBurst, strangerBurst, true}},
		"it is told once":     {{0, here, 200, strangerBurst, true}, {time.Second, here, 200, strangerRate, false}},
		"another port":        {{0, here, 1000, strangerBurst, true}, {0, there, 50, 50, false}},
		"slowly, for ever":    {{0, here, 100, 100, false}, {time.Second, here, 20, 20, false}, {time.Second, here, 20, 20, false}},
		"it has calmed down":  {{0, here, 200, 100, true}, {time.Minute, here, 100, 100, false}},
		"again after it was":  {{0, here, 200, 100, true}, {time.Minute, here, 200, 100, true}},
	} {
		t.Run(name, func(t *testing.T) {
			f, now := newFloods(), time.Now()
			for i, s := range steps {
				now = now.Add(s.after)
				f.expire(now)
				admitted, first := 0, false
				for range s.messages {
					ok, begins := f.allow(s.at, now)
					if ok {
						admitted++
					}
					first = first || begins
				}
				if admitted != s.admitted || first != s.first {
					t.Errorf("step %d: %d admitted, a flood begins: %v; want %d, %v", i, admitted, first, s.admitted, s.first)
				}
			}
			if f.expire(now.Add(time.Hour)); len(f.ports) != 0 {
				t.Errorf("%d ports are remembered", len(f.ports))
			}
		})
	}
}

// made returns an invented MAC address.
func made(n int) openflow.MAC {
	m := openflow.MAC{0x06, 0xee}
	binary.BigEndian.PutUint32(m[2:], uint32(n))
	return m
}

// dhcpFrame returns a frame with a DHCP message of a client.
func dhcpFrame(src openflow.MAC, m *dhcpv4.DHCPv4) []byte {
	return packet.AppendUDP(nil, packet.Frame{Dst: packet.Broadcast, Src: src}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(netip.IPv4Unspecified(), 68), Dst: netip.AddrPortFrom(netip.MustParseAddr("255.255.255.255"), 67), Payload: m.ToBytes(),
	})
}

// A flood of DISCOVERs from one port, each of another client, delays no device at another port,
// and leaves it an address. The flood is bounded, counted and reported.
func TestFloodFromOnePort(t *testing.T) {
	const pool, flood = 60, 3000
	offers := make(chan netip.Addr, 16) // at port 2
	sw := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, OnOutput: func(port uint32, frame []byte) {
		var h packet.Headers
		if port != 2 || h.Parse(frame) != nil || h.SrcPort != 67 {
			return
		}
		if m, err := dhcpv4.FromBytes(frame[h.Payload:]); err == nil {
			ip, _ := netip.AddrFromSlice(m.YourIPAddr.To4())
			offers <- ip
		}
	}})
	n, err := network.New(network.Config{Listen: []string{"127.0.0.1:0"}, DisableForwarding: true, DiscoveryInterval: 20 * time.Millisecond, DiscoverySettle: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := n.Owner(Name, network.OwnerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	settings := testSettings(t)
	settings.Borders = []Border{{Name: "up", At: ref(1, 9)}}
	alter(settings.Pools, "campus", func(p *registry.Pool) {
		p.Learn, p.Class, p.First, p.Last = true, "default", netip.MustParseAddr("10.8.1.1"), netip.MustParseAddr("10.8.1.60")
	})
	bus := event.NewBus(1, 4096)
	s, err := New(Options{Network: n, Rules: owner, Log: slog.New(slog.DiscardHandler), Store: newStore(t), Bus: bus, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	sub := bus.Subscribe(0)
	n.AddHandler(rule.ChainHandover, s)
	n.Subscribe(s.NetworkChanged)
	background(t, n.Run, s.Run, func(ctx context.Context) error { return sw.Dial(ctx, n.Addr()[0]) })
	r := rig{Service: s, t: t}
	r.eventually("edge ports", func() bool { return n.IsEdge(ref(1, 1)) && n.IsEdge(ref(1, 2)) })

	receive := func(port uint32, src openflow.MAC) {
		t.Helper()
		if _, err := sw.Receive(port, dhcpFrame(src, discover(src))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range flood {
		receive(1, made(i))
	}
	receive(2, mac1)          // of a registered device
	receive(2, made(1000000)) // of a stranger
	for range 2 {
		select {
		case ip := <-offers:
			if !ip.IsValid() {
				t.Error("an offer of no address")
			}
		case <-time.After(answerTime):
			t.Fatal("no offer at the other port")
		}
	}
	r.idle()
	u := s.registry.Usage()["campus"]
	if u.Size != pool || u.Held > pool/2+2 {
		t.Errorf("the flood holds %d of %d addresses", u.Held, u.Size)
	}
	// How many are admitted in which time is checked by TestFloods.
	dropped := counted(t, s, "port")
	if dropped == 0 {
		t.Errorf("none of %d messages was dropped", flood)
	}
	if !slices.Contains(happened(t, bus, sub), Name+".flood.started") {
		t.Error("no event tells of the flood")
	}
	t.Logf("%v of %d dropped", dropped, flood)
}

// counted returns how many messages were dropped because of a bound.
func counted(t *testing.T, s *Service, bound string) (n float64) {
	return countedIn(t, s.metrics.dropped, bound)
}

// countedIn returns the counter of one label value.
func countedIn(t *testing.T, v *prometheus.CounterVec, bound string) (n float64) {
	t.Helper()
	all := prometheus.NewRegistry()
	all.MustRegister(v)
	families, err := all.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if m.Label[0].GetValue() == bound {
				n += m.Counter.GetValue()
			}
		}
	}
	return n
}

// happened returns the kinds of events since the subscription.
func happened(t *testing.T, bus *event.Bus, sub *event.Subscription) (kinds []string) {
	t.Helper()
	bus.Publish("the end", nil)
	for {
		e, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "the end" {
			return kinds
		}
		kinds = append(kinds, e.Kind)
	}
}
