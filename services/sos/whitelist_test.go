package sos

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

func mustEntry(t *testing.T, s EntrySpec) Entry {
	t.Helper()
	e, faults := s.Parse()
	if len(faults) > 0 {
		t.Fatalf("%+v: %v", s, faults)
	}
	return e
}

func spec(clients, servers, ports string) EntrySpec {
	return EntrySpec{Clients: []string{clients}, Servers: []string{servers}, Ports: []string{ports}}
}

func TestWhitelistFind(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	early, late := now.Add(-time.Hour), now.Add(time.Hour)
	over := spec("10.9.0.0/16", "10.0.0.2", "80")
	over.Stop = &now
	future := spec("10.8.0.0/16", "10.0.0.2", "80")
	future.Start, future.Stop = &late, nil
	window := spec("10.7.0.0/16", "10.0.0.2", "8000-8099")
	window.Start, window.Stop = &early, &late
	w := Whitelist{
		mustEntry(t, spec("10.0.0.0/24", "10.0.0.2", "80")),
		mustEntry(t, spec("2001:db8::/64", "2001:db8::2", "1-65535")),
		mustEntry(t, over), mustEntry(t, future), mustEntry(t, window),
	}
	cases := []struct {
		client, server string
		want           int
	}{
		{"10.0.0.1", "10.0.0.2:80", 0},
		{"10.0.0.1", "10.0.0.2:81", -1},
		{"10.0.1.1", "10.0.0.2:80", -1},
		{"10.0.0.1", "10.0.0.3:80", -1},
		{"2001:db8::1", "[2001:db8::2]:9", 1},
		{"2001:db9::1", "[2001:db8::2]:9", -1},
		{"10.9.0.1", "10.0.0.2:80", -1},
		{"10.8.0.1", "10.0.0.2:80", -1},
		{"10.7.0.1", "10.0.0.2:8050", 4},
		{"10.7.0.1", "10.0.0.2:8100", -1},
	}
	for _, c := range cases {
		e, ok := w.Find(now, netip.MustParseAddr(c.client), netip.MustParseAddrPort(c.server))
		if ok != (c.want >= 0) || ok && e != &w[c.want] {
			t.Errorf("%s to %s: %v %v, want entry %d", c.client, c.server, e, ok, c.want)
		}
	}
	if got := w.NextChange(now); !got.Equal(late) {
		t.Errorf("next change at %v, want %v", got, late)
	}
	if got := w.NextChange(late); !got.IsZero() {
		t.Errorf("next change at %v, want none", got)
	}
}

func TestEntryFaults(t *testing.T) {
	past, future := time.Unix(1000, 0), time.Unix(2000, 0)
	cases := []struct {
		name   string
		change func(*EntrySpec)
		field  string
	}{
		{"no client", func(s *EntrySpec) { s.Clients = nil }, "clients"},
		{"word for an address", func(s *EntrySpec) { s.Clients = []string{"10.0.0.1", "office"} }, "clients[1]"},
		{"bits beyond the prefix", func(s *EntrySpec) { s.Clients = []string{"10.0.0.1/24"} }, "clients[0]"},
		{"multicast server", func(s *EntrySpec) { s.Servers = []string{"224.0.0.1"} }, "servers[0]"},
		{"zone", func(s *EntrySpec) { s.Servers = []string{"fe80::1%eth0"} }, "servers[0]"},
		{"mapped address", func(s *EntrySpec) { s.Servers = []string{"::ffff:10.0.0.1"} }, "servers[0]"},
		{"families apart", func(s *EntrySpec) { s.Servers = []string{"2001:db8::1"} }, "servers"},
		{"no port", func(s *EntrySpec) { s.Ports = nil }, "ports"},
		{"port 0", func(s *EntrySpec) { s.Ports = []string{"0"} }, "ports[0]"},
		{"port 70000", func(s *EntrySpec) { s.Ports = []string{"80", "70000"} }, "ports[1]"},
		{"range backwards", func(s *EntrySpec) { s.Ports = []string{"90-80"} }, "ports[0]"},
		{"client twice", func(s *EntrySpec) { s.Clients = []string{"10.0.0.1", "10.0.0.2", "10.0.0.1/32"} }, "clients[2]"},
		{"server twice", func(s *EntrySpec) { s.Servers = []string{"10.1.0.1", "10.1.0.1"} }, "servers[1]"},
		{"port twice", func(s *EntrySpec) { s.Ports = []string{"80", "80-80"} }, "ports[1]"},
		{"stop before start", func(s *EntrySpec) { s.Start, s.Stop = &future, &past }, "stop"},
		{"too many rules", func(s *EntrySpec) {
			s.Clients = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8"}
			s.Servers = s.Clients
			s.Ports = []string{"1-65534"}
		}, "ports"},
		{"connections", func(s *EntrySpec) { s.Tuning.Connections = 65 }, "tuning.connections"},
		{"chunk", func(s *EntrySpec) { s.Tuning.ChunkBytes = 7 }, "tuning.chunk_bytes"},
		{"queue", func(s *EntrySpec) { s.Tuning.Queue = -1 }, "tuning.queue"},
		{"transport", func(s *EntrySpec) { s.Tuning.Transport = "udp" }, "tuning.transport"},
		{"congestion control", func(s *EntrySpec) { s.Tuning.CongestionControl = "../bbr" }, "tuning.congestion_control"},
		{"paths", func(s *EntrySpec) { s.Tuning.Paths = 99 }, "tuning.paths"},
	}
	for _, c := range cases {
		s := spec("10.0.0.0/24", "10.1.0.1", "80")
		c.change(&s)
		_, faults := s.Parse()
		if !slices.ContainsFunc(faults, func(f kit.Fault) bool { return f.Field == c.field && f.Want != "" }) {
			t.Errorf("%s: faults %v, want one of %s", c.name, faults, c.field)
		}
	}
}

func TestPunts(t *testing.T) {
	now := time.Now()
	w := Whitelist{
		mustEntry(t, spec("10.0.0.0/24", "10.0.0.2", "80")),
		mustEntry(t, spec("10.0.0.0/24", "10.0.0.2", "80")), // the same entry again adds no second rule
		mustEntry(t, spec("0.0.0.0/0", "10.0.0.3", "8000-8005")),
	}
	rules, err := Punts(w, now, 5, true)
	if err != nil {
		t.Fatal(err)
	}
	syn := openflow.TCPFlags(0x02, 0x12)
	want := func(more ...openflow.OXM) network.Rule {
		m := openflow.MustMatch(append(more, openflow.EthType(0x0800), openflow.IPProto(6))...)
		return network.Rule{Switch: 5, Stage: network.StageSelect, Match: m, Actions: []openflow.Action{openflow.OutputController(0xffff)}}
	}
	third := netip.MustParsePrefix("10.0.0.3/32")
	var leased, open []network.Rule
	for _, r := range rules {
		if r.Leased {
			leased = append(leased, r)
		} else {
			open = append(open, r)
		}
	}
	if len(open) != len(leased) {
		t.Fatalf("%d rules ask, and %d stay without a controller", len(leased), len(open))
	}
	for i, r := range open {
		if r.Match != leased[i].Match || r.Priority() >= leased[i].Priority() || r.Goto != rule.TableRoute || len(r.Actions) > 0 {
			t.Errorf("below %v stands %v", leased[i], r)
		}
	}
	sameRules(t, "punts", leased, []network.Rule{
		want(openflow.IPSrcPrefix(netip.MustParsePrefix("10.0.0.0/24")), openflow.IPDst(hostB.Addr()), openflow.TCPDst(80), syn),
		want(openflow.IPDstPrefix(third), openflow.TCPDst(8000).WithMask(0xfffc), syn),
		want(openflow.IPDstPrefix(third), openflow.TCPDst(8004).WithMask(0xfffe), syn),
	})
	rules, err = Punts(w[:1], now, 5, false)
	if err != nil {
		t.Fatal(err)
	}
	sameRules(t, "without flags", rules, []network.Rule{
		want(openflow.IPSrcPrefix(netip.MustParsePrefix("10.0.0.0/24")), openflow.IPDst(hostB.Addr()), openflow.TCPDst(80)),
	})
}
