package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/trace"
	"github.com/sluice-net/sluice/openflow"
)

// wired is two switches whose second ports are joined, with a host at the
// first port of each.
type wired struct {
	left, right *fake.Switch
	noARP       atomic.Bool // the link loses all ARP
}

const (
	leftID  = 0xa1
	rightID = 0xa2
)

var (
	leftMAC, rightMAC = openflow.MAC{2, 0, 0, 0, 0, 1}, openflow.MAC{2, 0, 0, 0, 0, 2}
	leftIP, rightIP   = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
)

func newWired() *wired {
	w := &wired{}
	w.left = fake.NewSwitch(fake.Options{DPID: leftID, Ports: 3, OnOutput: func(port uint32, frame []byte) { w.pass(port, frame, w.right) }})
	w.right = fake.NewSwitch(fake.Options{DPID: rightID, Ports: 3, OnOutput: func(port uint32, frame []byte) { w.pass(port, frame, w.left) }})
	return w
}

// pass sends a frame over the link, unless the link loses frames of its kind.
func (w *wired) pass(port uint32, frame []byte, to *fake.Switch) {
	if !w.noARP.Load() || !isARP(frame) {
		pass(port, frame, to)
	}
}

func pass(port uint32, frame []byte, to *fake.Switch) {
	if port == 2 {
		_, _ = to.Receive(2, frame) // a switch that is not connected loses it
	}
}

// connect connects the switches to the controller until stop.
func (w *wired) connect(t *testing.T, addr net.Addr) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, s := range []*fake.Switch{w.left, w.right} {
		wg.Go(func() { _ = s.Dial(ctx, addr) }) // ends with the controller or the test
	}
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

// talk makes the hosts ask for each other.
func (w *wired) talk(t *testing.T) {
	t.Helper()
	for _, x := range []struct {
		s        *fake.Switch
		mac      openflow.MAC
		from, to netip.Addr
	}{{w.left, leftMAC, leftIP, rightIP}, {w.right, rightMAC, rightIP, leftIP}} {
		if _, err := x.s.Receive(1, packet.AppendARPRequest(nil, x.mac, x.from, x.to, 0)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNetworkThroughTheAPI(t *testing.T) {
	cfg := testConfig(t, "memory")
	cfg.Network.Discovery.Interval, cfg.Network.Discovery.Timeout = 200*time.Millisecond, time.Second
	cfg.Network.StatsInterval = 500 * time.Millisecond
	cfg.Network.Switches = map[openflow.DatapathID]config.SwitchIs{leftID: {Name: "left", Rewrite: "l2", Bundles: "off"}}
	r := run(t, cfg)
	_, openFlow := r.Addr()
	w := newWired()
	stop := w.connect(t, openFlow[0])
	const base = "/api/v1/network/"

	var links []networkapi.Link
	eventually(t, "both directions of the link are found", func() bool { r.get(t, base+"links", &links); return len(links) == 2 })
	var hosts []networkapi.Host
	eventually(t, "both hosts are learned", func() bool {
		w.talk(t)
		r.get(t, base+"hosts", &hosts)
		return len(hosts) == 2
	})

	var history []networkapi.LinkHistory
	eventually(t, "the link is measured", func() bool {
		r.get(t, base+"links/history?from=left/2&since=1m", &history)
		return len(history) == 1 && len(history[0].Points) >= 2 && history[0].Points[len(history[0].Points)-1].Latency > 0
	})
	if h := history[0]; h.To != (networkapi.Place{Switch: "00000000000000a2", Port: 2}) || h.Points[0].Seconds <= 0 || !h.Points[1].At.After(h.Points[0].At) {
		t.Errorf("history: %+v", h)
	}
	for path, want := range map[string]int{
		"links/history":                          http.StatusUnprocessableEntity,
		"links/history?from=left":                http.StatusUnprocessableEntity,
		"links/history?from=nowhere/2":           http.StatusNotFound,
		"links/history?from=left/2&since=-5m":    http.StatusUnprocessableEntity,
		"links/history?from=left/2&since=monday": http.StatusUnprocessableEntity,
		"links/history?from=left/1":              http.StatusNotFound,
		"talkers?at=left":                        http.StatusUnprocessableEntity,
		"talkers?at=left/1&limit=5":              http.StatusOK,
	} {
		if status, _, text := r.ask(t, http.MethodGet, base+path, ""); status != want {
			t.Errorf("%s: %d, want %d: %s", path, status, want, text)
		}
	}

	var left networkapi.SwitchDetail
	r.get(t, base+"switches/left", &left)
	if left.DPID != "00000000000000a1" || left.Name != "left" || left.Rewrite != "l2" || left.Bundles || len(left.PortList) != 3 || left.Rules < 2 {
		t.Errorf("switch: %+v", left)
	}
	if p := left.PortList; !p[0].Up || !p[0].Edge || p[1].Edge {
		t.Errorf("ports: %+v", p)
	}
	var paths []networkapi.Path
	r.get(t, base+"paths?from=10.0.0.1&to="+rightMAC.String()+"&metric=hops", &paths)
	want := []networkapi.Hop{{Switch: "00000000000000a1", In: 1, Out: 2}, {Switch: "00000000000000a2", In: 2, Out: 1}}
	if len(paths) != 1 || len(paths[0].Hops) != 2 || paths[0].Hops[0] != want[0] || paths[0].Hops[1] != want[1] {
		t.Errorf("paths: %+v", paths)
	}
	for _, kind := range []string{"disjoint", "widest"} {
		r.get(t, base+"paths?from=left/1&to=10.0.0.2&count=3&kind="+kind, &paths)
		if len(paths) > 1 || kind == "disjoint" && len(paths) != 1 {
			t.Errorf("%s paths: %+v", kind, paths)
		}
	}
	var rules []networkapi.Rule
	eventually(t, "rules count packets", func() bool {
		r.get(t, base+"rules?switch=left", &rules)
		return slices.ContainsFunc(rules, func(r networkapi.Rule) bool { return r.Packets > 0 && r.Bytes > 0 && r.CountedAt != nil })
	})
	r.get(t, base+"rules?switch=left&owner=network", &rules)
	if len(rules) == 0 || rules[0].Owner != "network" || !strings.HasPrefix(rules[0].Cookie, "0x5c") || rules[0].Actions == "" {
		t.Errorf("rules: %+v", rules)
	}
	var found trace.Trace
	r.get(t, base+"trace?packet=arp,arp_spa%3D10.0.0.1,arp_tpa%3D10.0.0.2", &found)
	if len(found.Steps) == 0 || found.Steps[0].Switch != leftID || found.Steps[0].InPort != 1 {
		t.Errorf("trace: %+v", found)
	}
	status, _, text := r.ask(t, http.MethodGet, "/metrics", "")
	if status != http.StatusOK || !strings.Contains(text, "sluice_network_switches 2") || !strings.Contains(text, `sluice_network_packet_ins_total{kind="tcp",switch="00000000000000a1"}`) ||
		!strings.Contains(text, `sluice_network_link_latency_seconds{from="00000000000000a1/2",to="00000000000000a2/2"}`) {
		t.Errorf("metrics: %d", status)
	}
	for _, kind := range []openflow.MsgType{openflow.TypePacketOut, openflow.TypeMultipartRequest, openflow.TypeBarrierRequest} {
		eventually(t, "messages are counted as the switch counts them", func() bool {
			_, _, text := r.ask(t, http.MethodGet, "/metrics", "")
			n := w.left.Count(kind)
			of := regexp.MustCompile(fmt.Sprintf(`sluice_network_messages_total{about="[a-z_]*",direction="sent",switch="00000000000000a1",type="%s"} (\d+)\n`, strings.ToLower(kind.String())))
			sum := 0
			for _, m := range of.FindAllStringSubmatch(text, -1) {
				n, _ := strconv.Atoi(m[1])
				sum += n
			}
			return n > 0 && sum == n
		})
	}
	stop()
	var switches []networkapi.Switch
	eventually(t, "the switches are gone", func() bool { r.get(t, base+"switches", &switches); return len(switches) == 0 })
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestRestartLeavesRules checks that the rules of a stopped controller stay, and are still there
// when one has been started again. Their cookies may differ: rules that a service declares while a
// switch is still being read are written again (ledger.Sending).
func TestRestartLeavesRules(t *testing.T) {
	cfg := testConfig(t, "embedded")
	w := newWired()
	rules := func() map[string]bool {
		out := map[string]bool{}
		for _, s := range []*fake.Switch{w.left, w.right} {
			for _, e := range s.Table().Entries() {
				out[fmt.Sprint(e.Table, e.Priority, e.Match, e.Instructions)] = true
			}
		}
		return out
	}
	var before map[string]bool
	for start := range 2 {
		r := run(t, cfg)
		_, openFlow := r.Addr()
		stop := w.connect(t, openFlow[0])
		var switches []networkapi.Switch
		eventually(t, "the switches are up", func() bool { r.get(t, "/api/v1/network/switches", &switches); return len(switches) == 2 })
		if start == 1 {
			after := rules()
			for r := range before {
				if !after[r] {
					t.Errorf("rule %s is gone after the restart", r)
				}
			}
		}
		r.stop()
		stop()
		if before = rules(); len(before) == 0 {
			t.Errorf("start %d: stopping the controller removed the rules", start)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestEventAttrs checks that the attributes of an event depend on its kind: 12 left-out events of a
// port are not those of a host without an address.
func TestEventAttrs(t *testing.T) {
	at := network.PortRef{Switch: leftID, Port: 3}
	link := network.Link{From: at, To: network.PortRef{Switch: rightID, Port: 1}}
	for _, c := range []struct {
		event network.Event
		want  string
	}{
		{network.Event{Kind: network.EventsLeftOut, Switch: leftID, Port: at, LeftOut: 12}, `{"switch":"00000000000000a1","port":3,"left_out":12}`},
		{network.Event{Kind: network.HostRefused, Port: at, Reason: "pinned"}, `{"switch":"00000000000000a1","port":3,"reason":"pinned"}`},
		{network.Event{Kind: network.SwitchDown, Switch: leftID}, `{"switch":"00000000000000a1"}`},
	} {
		got, err := json.Marshal(networkapi.EventAttrs(c.event))
		if err != nil || string(got) != c.want {
			t.Errorf("%v: %s %v, want %s", c.event.Kind, got, err, c.want)
		}
	}
	got, err := json.Marshal(networkapi.EventAttrs(network.Event{Kind: network.LinkMisplaced, Switch: leftID, Port: at, Link: link, Reason: "access"}))
	if err != nil || !strings.HasPrefix(string(got), `{"link":{"from":{"switch":"00000000000000a1","port":3},`) || strings.Contains(string(got), `"host"`) {
		t.Errorf("link-misplaced: %s %v", got, err)
	}
}
