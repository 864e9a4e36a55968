package doctor

import (
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"github.com/sluice-net/sluice/internal/live"
)

func TestJudgePort(t *testing.T) {
	good := port{name: "eth0", mtu: 1500, queue: 1000, sent: 1e6, dropped: 3, disciplines: []string{"mq", "fq_codel"}}
	with := func(change func(*port)) []Finding {
		p := good
		change(&p)
		return p.judge()
	}
	for name, c := range map[string]struct {
		found  []Finding
		level  Level
		advice string
	}{
		"good":               {good.judge(), OK, ""},
		"small MTU":          {with(func(p *port) { p.mtu = 1450 }), Warn, "mtu 1500"},
		"large MTU":          {with(func(p *port) { p.mtu = 9000 }), OK, ""},
		"limited":            {with(func(p *port) { p.disciplines = []string{"tbf"} }), Warn, "tc qdisc del"},
		"drops":              {with(func(p *port) { p.dropped = 1000 }), Warn, "ethtool"},
		"drops all":          {with(func(p *port) { p.sent, p.dropped = 0, 11 }), Warn, "ethtool"},
		"drops one at first": {with(func(p *port) { p.sent, p.dropped = 0, 1 }), OK, ""},
		"short queue":        {with(func(p *port) { p.queue = 0 }), Warn, "txqueuelen"},
		"virtual, no queue":  {with(func(p *port) { p.queue, p.virtual = 0, true }), OK, ""},
		"nftables":           {with(func(p *port) { p.restrictedTables = []string{"inet filter input (input)"} }), Warn, "nft list"},
	} {
		t.Run(name, func(t *testing.T) {
			level(t, c.found, "data interface", c.level, c.advice)
		})
	}
}

// TestDataInterfaceOfThisMachine checks a real interface with everything that slows its traffic
// down.
func TestDataInterfaceOfThisMachine(t *testing.T) {
	live.Test(t)
	runtime.LockOSThread() // it ends with the test's goroutine, and its namespace with it
	here, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	run("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
	run("ip", "addr", "add", "192.0.2.1/24", "dev", "d0")
	run("ip", "link", "set", "d1", "up")
	run("ip", "link", "set", "d0", "up")
	addr := netip.MustParseAddr("192.0.2.1")
	level(t, Host().dataInterface(t.Context(), addr), "data interface", OK, "")
	if none := Host().dataInterface(t.Context(), addr.Next()); len(none) != 0 {
		t.Errorf("an address that is not there: %+v", none)
	}
	run("ip", "link", "set", "d0", "mtu", "1400")
	run("tc", "qdisc", "add", "dev", "d0", "root", "tbf", "rate", "1mbit", "burst", "10kb", "latency", "50ms")
	run("nft", "add table inet closed; add chain inet closed in { type filter hook input priority 0; policy drop; }")
	run("nft", "add table bridge cut; add chain bridge cut f { type filter hook forward priority 0; }; add rule bridge cut f iifname { a, d0 } counter drop")
	all := Host().dataInterface(t.Context(), addr)
	if len(all) != 4 {
		t.Errorf("%d findings, want 4: %+v", len(all), all)
	}
	for _, advice := range []string{"mtu 1500", "tc qdisc del dev d0", "nft list ruleset", "what Sluice carries"} {
		found := false
		for _, f := range all {
			found = found || f.Level == Warn && strings.Contains(f.Advice, advice)
		}
		if !found {
			t.Errorf("nothing advises %q: %+v", advice, all)
		}
	}
}
