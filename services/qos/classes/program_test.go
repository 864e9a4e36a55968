package classes

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/services/qos/mark"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// row is switches 1 to n in a row: port 1 leads to the one before, 2 to the next, 3 to a host.
func row(n int, latency time.Duration) *topology.Topology {
	var ids []openflow.DatapathID
	var links []topology.Link
	for i := 1; i <= n; i++ {
		ids = append(ids, openflow.DatapathID(i))
		if i < n {
			a, b := portRef(openflow.DatapathID(i), 2), portRef(openflow.DatapathID(i+1), 1)
			links = append(links, topology.Link{From: a, To: b, Latency: latency}, topology.Link{From: b, To: a, Latency: latency})
		}
	}
	return topology.New(1, ids, links)
}

func host(s int) topology.Host {
	return topology.Host{At: portRef(openflow.DatapathID(s), 3), IPs: []netip.Addr{end(byte(s)).IP}}
}

// options is the way of a flow that asks for nothing.
func options(t *topology.Topology, flow int, src, dst topology.Host, open bool) []Route {
	r, _, err := findRoute(t, &Class{}, flow, endpoints{src: src, dst: dst, anySource: open}, func(topology.Link) string { return "" })
	if err != nil {
		panic(err)
	}
	return []Route{r}
}

// A class goes by the one way that has its rate left, however many shorter ones have not,
// and is refused by what the shortest lacks if there is none.
func TestTheWayThatHasTheRate(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	const last, middle = 10, 6 // 1 to each of 2..7 to 10; 1 to 8 to 9 to 10
	var ids []openflow.DatapathID
	var links []topology.Link
	join := func(a, b topology.PortRef) {
		links = append(links, topology.Link{From: a, To: b, Latency: time.Millisecond}, topology.Link{From: b, To: a, Latency: time.Millisecond})
	}
	for i := openflow.DatapathID(1); i <= last; i++ {
		ids = append(ids, i)
		x.bases[uint64(i)] = &base{dpid: uint64(i), known: map[uint32]string{}, changed: make(chan struct{})}
	}
	x.Databases.Declare(x.queues.desiredState)
	for i := range uint32(middle) {
		m := openflow.DatapathID(2 + i)
		join(portRef(1, 10+i), portRef(m, 1))
		join(portRef(m, 2), portRef(last, 10+i))
	}
	join(portRef(1, 20), portRef(8, 1))
	join(portRef(8, 2), portRef(9, 1))
	join(portRef(9, 2), portRef(last, 20))
	x.fabric.SetTopology(topology.New(3, ids, links))
	x.fabric.SetHost(topology.Host{At: portRef(last, 3), IPs: []netip.Addr{end(3).IP}})
	for i := range uint32(middle) {
		x.Book.Restore(reserve.Promise{Key: reserve.Key{Owner: "them", ID: fmt.Sprint(i)}, Enforced: true, Shares: []reserve.Share{{Link: portRef(openflow.DatapathID(2+i), 2), Rate: 9e6}}})
	}
	class := request(t, "wide", 7000)
	class.MinRate = 5_000_000
	info, err := x.Add(t.Context(), class)
	if err != nil || len(info.Paths) != 1 || len(info.Paths[0].Hops) != 4 {
		t.Fatalf("%+v, %v", info.Paths, err)
	}
	class = request(t, "quick", 7001)
	class.MinRate, class.Latency = 5_000_000, 2*time.Millisecond
	_, err = x.Add(t.Context(), class)
	var no *Refusal
	if !errors.As(err, &no) || no.Field != "min_rate" || !strings.Contains(no.Why, "port 2: 5000000 bit/s asked") {
		t.Errorf("within 2 ms: %v", err)
	}
	class.Latency = 1500 * time.Microsecond
	if _, err = x.Add(t.Context(), class); !errors.As(err, &no) || no.Field != "latency" || !strings.Contains(no.Why, "take 2ms") {
		t.Errorf("within 1.5 ms: %v", err)
	}
}

func TestRoutes(t *testing.T) {
	top := row(3, 2*time.Millisecond)
	all := options(top, 0, host(1), host(3), false)
	if len(all) != 1 || len(all[0].Hops) != 3 || all[0].Latency != 4*time.Millisecond || all[0].Hops[2].Out != 3 {
		t.Fatalf("%+v", all)
	}
	c := &Class{Latency: 3 * time.Millisecond}
	var no *Refusal
	if err := all[0].checkLatency(c); !errors.As(err, &no) || no.Field != "latency" {
		t.Errorf("4 ms are taken for 3: %v", err)
	}
	c.Latency = 4 * time.Millisecond
	if r := all[0].checkLatency(c); r != nil {
		t.Error(r)
	}
	if unknown := options(row(3, 0), 0, host(1), host(3), false); unknown[0].checkLatency(c) == nil {
		t.Error("a link that was not measured is taken for fast")
	}
	if !all[0].isIntact(top, host(3).At) || all[0].isIntact(row(2, 0), host(3).At) || all[0].isIntact(top, portRef(3, 9)) {
		t.Error("whether the path still stands")
	}
	tree := options(top, 0, topology.Host{}, host(2), true)[0]
	if len(tree.Hops) != 3 || tree.Hops[0].Out != 2 || tree.Hops[1].Out != 3 || tree.Hops[2].Out != 1 || tree.Latency != 2*time.Millisecond {
		t.Errorf("%+v", tree)
	}
	if !tree.isIntact(top, host(2).At) || tree.isIntact(top, host(1).At) {
		t.Error("whether the tree still stands")
	}
	if ports := portsOf(append(all, tree)); len(ports) != 5 || len(switchesOf(all)) != 3 {
		t.Errorf("%v", ports)
	}
}

// On a userspace datapath only packets whose DSCP is known get the queue; others go the
// same way, and are counted.
func TestProgram(t *testing.T) {
	m := openflow.MustMatch(openflow.InPort(3), openflow.EthType(0x0800), openflow.IPProto(17), openflow.UDPDst(7))
	c := &Class{Priority: 2, Flows: []Flow{{Matches: []openflow.Match{m}}}}
	routes := options(row(2, 0), 0, host(1), host(2), false)
	kernel := program(c, routes, 9, 0, nil)
	if len(kernel.Rules) != 4 {
		t.Fatalf("%+v", kernel.Rules)
	}
	for i, at := range []openflow.DatapathID{2, 1} {
		way, marked := kernel.Rules[2*i], kernel.Rules[2*i+1]
		if way.Switch != at || marked.Switch != at || rule.WayOf(marked.Key()) != way.Key() ||
			!slices.Equal(marked.Actions, []openflow.Action{openflow.SetQueue(9)}) || !slices.Equal(way.Actions, []openflow.Action{openflow.Output([]uint32{3, 2}[i])}) {
			t.Errorf("at switch %v: %+v and %+v", at, way, marked)
		}
		// The in-port is that of the first switch only.
		if _, ok := way.Match.Get(openflow.FieldInPort); ok != (at == 1) {
			t.Errorf("at switch %v: %v", at, way.Match)
		}
	}
	user := program(c, routes, 9, 0, map[openflow.DatapathID]bool{1: true, 2: true}).Rules
	if len(user) != 8 || len(user[0].Actions) != 1 || len(user[1].Actions) != 0 || user[2].Offset <= user[0].Offset {
		t.Fatalf("%+v", user)
	}
	for i := 0; i < len(user); i += 2 {
		if rule.WayOf(user[i+1].Key()) != user[i].Key() {
			t.Errorf("%+v is not the mark of %+v", user[i+1], user[i])
		}
	}
	if o, ok := user[2].Match.Get(openflow.FieldIPDSCP); !ok || o.Uint() != 0 {
		t.Errorf("%v", user[2].Match)
	}
	if both := withDSCP(openflow.MustMatch(openflow.EthDst(openflow.MAC{2})), 46); len(both) != 2 {
		t.Errorf("a match of any type: %v", both)
	}
	if none := withDSCP(openflow.MustMatch(openflow.EthType(0x0806)), 0); len(none) != 0 {
		t.Errorf("ARP: %v", none)
	}
}

func TestRoots(t *testing.T) {
	e := &entry{class: Class{Name: "x", Priority: 1}, queue: 4, placement: placement{mark: 3, own: 46, userspace: map[openflow.DatapathID]bool{1: true}}}
	q := e.leaf(portRef(1, 1), rates{1e6, 2e6})
	if e, ok, err := mark.Read(4, q.Tags); e != (mark.Entry{Queue: 4, Mark: 3, Own: 46}) || !ok || err != nil || q.Tags[TagClass] != "x" {
		t.Errorf("%+v", q)
	}
	all := roots(map[uint32]uint64{1: 10e6, 2: 0}, map[uint32][]ovsdb.Queue{1: {q}})
	if len(all) != 1 || all[1].Rate != 10e6 || len(all[1].Queues) != 3 || all[1].Queues[0].Priority != LowestPriority {
		t.Fatalf("%+v", all)
	}
	if p := all[1].Queues[2]; p.ID <= MaxClasses || p.Tags[mark.TagProbes] == "" || p.Priority != 0 || p.MinRate != probeRate {
		t.Errorf("the queue of probes: %+v", p)
	}
	if p := roots(map[uint32]uint64{1: minQueueRate}, nil)[1].Queues[1]; p.MinRate != minQueueRate || p.MaxRate != minQueueRate {
		t.Errorf("the queue of probes of a slow port: %+v", p)
	}
}

func TestMarksAreDistinct(t *testing.T) {
	seen := map[uint8]bool{0: true}
	for _, m := range marks {
		if seen[m] || m > 63 {
			t.Errorf("mark %d twice", m)
		}
		seen[m] = true
	}
	for _, assigned := range []uint8{1, 8, 10, 16, 34, 44, 46, 48, 56} { // LE, class selectors, AF, VA, EF
		if seen[assigned] {
			t.Errorf("%d is assigned to somebody else", assigned)
		}
	}
}

func TestJudge(t *testing.T) {
	e := &entry{queue: 4, placement: placement{userspace: map[openflow.DatapathID]bool{1: true}}}
	at := portRef(1, 2)
	s := &sample{}
	step := func(d counters) (finding, bool) {
		now := &sample{}
		f, found := judge(e, at, s, now, d)
		s = now
		return f, found
	}
	bad := counters{Matched: 100}
	if _, found := step(bad); found {
		t.Error("judged by one reading")
	}
	if f, found := step(bad); !found || f.reason == "" {
		t.Error("a queue that sees nothing has no effect")
	}
	if _, found := step(bad); found {
		t.Error("said twice")
	}
	if _, found := step(counters{Matched: 5}); found {
		t.Error("judged by five packets")
	}
	if f, found := step(counters{Matched: 100, Packets: 60, Drops: 40}); !found || f.reason != "" {
		t.Error("dropped packets have reached the queue")
	}
	step(counters{Plain: 100})
	if f, found := step(counters{Plain: 100}); !found || f.reason == "" {
		t.Error("packets of another DSCP have no queue")
	}
	if d := (counters{Packets: 5}).since(counters{Packets: 7}); d.Packets != 5 {
		t.Errorf("a counter that began anew: %d", d.Packets)
	}
}
