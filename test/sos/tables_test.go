package sos

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/services/sos/agent"
)

// names maps the words of an expected rule to their values in this run: client:mac,
// client:ip, client:port, s1>client (a switch's port), ...
type names map[string]string

var word = regexp.MustCompile(`\{[^}]+\}`)

// rule returns an expected rule with its words replaced.
func (n names) rule(t testing.TB, text string) string {
	t.Helper()
	return word.ReplaceAllStringFunc(text, func(s string) string {
		v, ok := n[strings.Trim(s, "{}")]
		if !ok {
			t.Fatalf("%s stands for nothing: %v", s, n)
		}
		return v
	})
}

// names returns the values that the rules of a connection consist of. The agents choose
// their own ports; these are read from the rules.
func (w *world) names(c net.Conn, v6 bool) names {
	w.t.Helper()
	n := names{}
	isSwitch := map[string]bool{}
	for _, s := range w.lab.Topology().Switches {
		isSwitch[s.Name] = true
	}
	for _, h := range w.lab.Topology().Hosts {
		host := w.lab.Host(h.Name)
		mac := host.MAC()
		n[h.Name+":mac"], n[h.Name+":ip"] = net.HardwareAddr(mac[:]).String(), host.Addr().String()
		if v6 {
			n[h.Name+":ip"] = host.Addr6().String()
		}
	}
	for _, l := range w.lab.Topology().Links {
		for _, ends := range [][2]string{{l.A.Node, l.B.Node}, {l.B.Node, l.A.Node}} {
			if isSwitch[ends[0]] {
				port, err := w.lab.Switch(ends[0]).Port(l.Name)
				if err != nil {
					w.t.Fatal(err)
				}
				n[ends[0]+">"+ends[1]] = fmt.Sprint(port)
			}
		}
	}
	n["client:port"] = fmt.Sprint(netip.MustParseAddrPort(c.LocalAddr().String()).Port())
	n["server:port"] = fmt.Sprint(netip.MustParseAddrPort(c.RemoteAddr().String()).Port())
	towards := regexp.MustCompile(`set_field:([^,>]+)->ipv?6?_dst,set_field:(\d+)->tcp_dst`)
	for _, s := range w.lab.Topology().Switches {
		for _, r := range w.serviceRules(s.Name) {
			if m := towards.FindStringSubmatch(r); m != nil {
				for _, a := range []string{"x", "y"} {
					if m[1] == n[a+":ip"] {
						n[a+":port"] = m[2]
					}
				}
			}
		}
	}
	return n
}

// wantRules compares the rules of sessions in a switch, as ovs-ofctl prints
// them, with those expected.
func (w *world) wantRules(n names, sw string, want ...string) {
	w.t.Helper()
	for i := range want {
		want[i] = n.rule(w.t, want[i])
	}
	slices.Sort(want)
	if got := w.serviceRules(sw); !slices.Equal(got, want) {
		w.t.Errorf("rules of %s:\n%s\nwant:\n%s", sw, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wantPublishedTable compares with table 5.2.1. First packets come to the controller
// first, and go on by rule 1's actions.
func (w *world) wantPublishedTable(n names) {
	w.t.Helper()
	w.wantRules(n, "s1",
		/* 1 */ "tcp,in_port={s1>client},nw_src={client:ip},nw_dst={server:ip},tp_src={client:port},tp_dst={server:port},tcp_flags=-syn actions=set_field:{x:mac}->eth_dst,set_field:{x:ip}->ip_dst,set_field:{x:port}->tcp_dst,output:{s1>x}",
		/* 2 */ "tcp,in_port={s1>x},nw_src={x:ip},nw_dst={client:ip},tp_src={x:port},tp_dst={client:port} actions=set_field:{server:mac}->eth_src,set_field:{server:ip}->ip_src,set_field:{server:port}->tcp_src,output:{s1>client}",
		/* 3 */ "tcp,in_port={s1>x},nw_src={x:ip},nw_dst={y:ip} actions=output:{s1>s2}",
		/* 4 */ "tcp,in_port={s1>s2},nw_src={y:ip},nw_dst={x:ip} actions=output:{s1>x}")
	w.wantRules(n, "s2",
		/* 5 */ "tcp,in_port={s2>s1},nw_src={x:ip},nw_dst={y:ip} actions=output:{s2>y}",
		/* 6 */ "tcp,in_port={s2>y},nw_src={y:ip},nw_dst={x:ip} actions=output:{s2>s1}",
		/* 7 */ "tcp,in_port={s2>y},nw_src={y:ip},nw_dst={server:ip},tp_src={y:port},tp_dst={server:port} actions=set_field:{client:mac}->eth_src,set_field:{client:ip}->ip_src,set_field:{client:port}->tcp_src,output:{s2>server}",
		/* 8 */ "tcp,in_port={s2>server},nw_src={server:ip},nw_dst={client:ip},tp_src={server:port},tp_dst={client:port} actions=set_field:{y:mac}->eth_dst,set_field:{y:ip}->ip_dst,set_field:{y:port}->tcp_dst,output:{s2>y}")
}

// wantLimitedTable compares with tables 5.2.2 and 5.2.3: the hardware switches
// s1 and s2 rewrite MAC addresses, the software switches xs and ys the rest.
func (w *world) wantLimitedTable(n names) {
	w.t.Helper()
	w.wantRules(n, "s1",
		/* 1.1 */ "tcp,in_port={s1>client},nw_src={client:ip},nw_dst={server:ip},tp_src={client:port},tp_dst={server:port},tcp_flags=-syn actions=set_field:{x:mac}->eth_dst,output:{s1>xs}",
		/* 2.2 */ "tcp,in_port={s1>xs},nw_src={server:ip},nw_dst={client:ip},tp_src={server:port},tp_dst={client:port} actions=set_field:{server:mac}->eth_src,output:{s1>client}",
		/* 3.2 */ "tcp,in_port={s1>xs},nw_src={x:ip},nw_dst={y:ip} actions=output:{s1>s2}",
		/* 4.1 */ "tcp,in_port={s1>s2},nw_src={y:ip},nw_dst={x:ip} actions=output:{s1>xs}")
	w.wantRules(n, "xs",
		/* 1.2 */ "tcp,in_port={xs>s1},nw_src={client:ip},nw_dst={server:ip},tp_src={client:port},tp_dst={server:port} actions=set_field:{x:ip}->ip_dst,set_field:{x:port}->tcp_dst,output:{xs>x}",
		/* 2.1 */ "tcp,in_port={xs>x},nw_src={x:ip},nw_dst={client:ip},tp_src={x:port},tp_dst={client:port} actions=set_field:{server:ip}->ip_src,set_field:{server:port}->tcp_src,output:{xs>s1}",
		/* 3.1 */ "tcp,in_port={xs>x},nw_src={x:ip},nw_dst={y:ip} actions=output:{xs>s1}",
		/* 4.2 */ "tcp,in_port={xs>s1},nw_src={y:ip},nw_dst={x:ip} actions=output:{xs>x}")
	w.wantRules(n, "s2",
		/* 5.1 */ "tcp,in_port={s2>s1},nw_src={x:ip},nw_dst={y:ip} actions=output:{s2>ys}",
		/* 6.2 */ "tcp,in_port={s2>ys},nw_src={y:ip},nw_dst={x:ip} actions=output:{s2>s1}",
		/* 7.2 */ "tcp,in_port={s2>ys},nw_src={client:ip},nw_dst={server:ip},tp_src={client:port},tp_dst={server:port} actions=set_field:{client:mac}->eth_src,output:{s2>server}",
		/* 8.1 */ "tcp,in_port={s2>server},nw_src={server:ip},nw_dst={client:ip},tp_src={server:port},tp_dst={client:port} actions=set_field:{y:mac}->eth_dst,output:{s2>ys}")
	w.wantRules(n, "ys",
		/* 5.2 */ "tcp,in_port={ys>s2},nw_src={x:ip},nw_dst={y:ip} actions=output:{ys>y}",
		/* 6.1 */ "tcp,in_port={ys>y},nw_src={y:ip},nw_dst={x:ip} actions=output:{ys>s2}",
		/* 7.1 */ "tcp,in_port={ys>y},nw_src={y:ip},nw_dst={server:ip},tp_src={y:port},tp_dst={server:port} actions=set_field:{client:ip}->ip_src,set_field:{client:port}->tcp_src,output:{ys>s2}",
		/* 8.2 */ "tcp,in_port={ys>s2},nw_src={server:ip},nw_dst={client:ip},tp_src={server:port},tp_dst={client:port} actions=set_field:{y:ip}->ip_dst,set_field:{y:port}->tcp_dst,output:{ys>y}")
}

// carry downloads through a session, checks the addresses that both ends see, and calls
// look while the session is live.
func (w *world) carry(size int64, look func(net.Conn)) {
	w.t.Helper()
	seen := make(chan net.Addr, 1)
	start := make(chan struct{})
	w.serve(80, func(c *net.TCPConn) {
		seen <- c.RemoteAddr()
		select {
		case <-start:
			_, _ = copyContent(c, 1, size)
		case <-w.t.Context().Done():
		}
	})
	c := w.mustDial(80)
	if got := <-seen; got.String() != c.LocalAddr().String() {
		w.t.Errorf("the server sees %v, the client is %v", got, c.LocalAddr())
	}
	if r := w.live(); r.ClientAgent != "x" || r.ServerAgent != "y" {
		w.t.Errorf("agents %s and %s, want x and y", r.ClientAgent, r.ServerAgent)
	}
	look(c)
	close(start)
	w.wantContent(c, 1, size)
	_ = c.Close()
	w.clean()
	past := w.sessions("past")
	if len(past) != 1 || past[0].BytesDown != uint64(size) || past[0].How != "closed" {
		w.t.Errorf("history %+v", past)
	}
}

// TestSmoke carries a download by two agents over Open vSwitch. Both ends see each other's
// addresses, the client receives exactly the server's bytes, the session's record names the
// agents and says that it was closed, and the switches hold the rules of the published
// table meanwhile and none of them afterwards.
func TestSmoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sostab", wan), options{})
	w.carry(20<<20, func(c net.Conn) { w.wantPublishedTable(w.names(c, false)) })
}

func TestLimitedSwitchesTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.LimitedWAN("soslim", wan), options{})
	w.carry(5<<20, func(c net.Conn) {
		w.wantLimitedTable(w.names(c, false))
		for _, s := range []string{"s1", "s2"} {
			if err := w.lab.Switch(s).CheckCapabilities(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestPathTags spreads connections over two paths: two rules per path in each
// core switch, whatever the number of connections.
func TestPathTags(t *testing.T) {
	t.Parallel()
	for _, p := range []int{1, 32} {
		t.Run(fmt.Sprintf("p=%d", p), func(t *testing.T) {
			t.Parallel()
			one := delayline.Params{Rate: 100e6, Delay: 20 * time.Millisecond}
			two := delayline.Params{Rate: 100e6, Delay: 30 * time.Millisecond}
			w := newWorld(t, lab.TwoPathWAN("sospath", one, two), options{quiet: true})
			w.allow(func(e *entry) { e.Tuning.Paths, e.Tuning.Connections = 2, p })
			w.carry(5<<20, func(net.Conn) {
				for _, core := range []string{"m1", "m2"} {
					if rules := w.serviceRules(core); len(rules) != 2 {
						t.Errorf("%d rules in %s, want 2:\n%s", len(rules), core, strings.Join(rules, "\n"))
					} else if !strings.HasPrefix(rules[0], "dl_dst=02:53:") {
						t.Errorf("%s matches more than the tag: %s", core, rules[0])
					}
				}
			})
		})
	}
}

func TestIslands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Islands("sosisl", wan), options{})
	w.carry(5<<20, func(net.Conn) {
		for _, s := range []string{"s1", "s2"} {
			if rules := w.serviceRules(s); len(rules) != 2 {
				t.Errorf("%s has rules between agents, although nothing of ours lies between them:\n%s", s, strings.Join(rules, "\n"))
			}
		}
	})
}

func TestRoutedEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Routed("sosrtd", wan), options{})
	w.carry(5<<20, func(net.Conn) {})
}

func TestVLANTranslation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.VLANWAN("sosvlan", wan), options{quiet: true})
	w.translated = true
	w.allow(nil)
	w.carry(5<<20, func(net.Conn) {})
}

func TestIPv6(t *testing.T) {
	t.Parallel()
	top := lab.WAN("sosv6", wan)
	w := newWorld(t, top, options{quiet: true, noAgents: true})
	for _, h := range []string{"x", "y"} {
		w.startAgent(h, func(c *agent.Config) { c.DataAddr = w.lab.Host(h).Addr6() })
		w.addAgent(h)
	}
	w.v6 = true
	w.allow(nil)
	w.carry(5<<20, func(net.Conn) {})
}

// TestBothFamilies has agents that carry IPv4 and IPv6, each from one process. An address
// that an agent does not have is refused when it is entered.
func TestBothFamilies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosboth", wan), options{quiet: true, noAgents: true})
	x := w.startAgent("x", nil)
	spec := control.AgentSpec{
		Name: "x", URL: "https://" + x.cfg.Listen, Addrs: []string{x.cfg.DataAddr.String(), w.lab.Host("x").Addr6().String()},
	}
	err := w.rest.Do(t.Context(), "POST", "/api/v1/sos/agents", spec, nil)
	if err == nil || !strings.Contains(err.Error(), "addrs[1]") || !strings.Contains(err.Error(), x.cfg.DataAddr.String()) {
		t.Errorf("an agent of one family is added with both: %v", err)
	}
	x.kill()
	for _, h := range []string{"x", "y"} {
		w.startAgent(h, func(c *agent.Config) { c.SecondAddr = w.lab.Host(h).Addr6() })
		w.addAgent(h)
	}
	for _, w.v6 = range []bool{false, true} {
		w.allow(nil)
		w.download(80, 1, 5<<20)
		c := w.mustDial(80)
		w.wantContent(c, 1, 5<<20)
		_ = c.Close()
		w.clean()
		past := w.sessions("past")
		if r := past[0]; r.How != "closed" || r.BytesDown != 5<<20 || r.Client.Addr().Is6() != w.v6 || r.ClientAgent != "x" || r.ServerAgent != "y" {
			t.Errorf("IPv6 %v: %+v", w.v6, past)
		}
	}
}
