package critical

import (
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

// segment is one of a connection between two hosts, in one of its directions.
func segment(from, to [2]int, source uint16, there bool, flags uint16) *packet.Headers {
	h := headers(from, to, source)
	if h.TCPFlags = flags; there {
		return h
	}
	h.EthSrc, h.EthDst, h.Src, h.Dst, h.SrcPort, h.DstPort = h.EthDst, h.EthSrc, h.Dst, h.Src, h.DstPort, h.SrcPort
	return h
}

// What a connection was promised is free as soon as both sides have closed it. Its rules
// stay for the last segments, and if it is opened again it is placed anew.
func TestClosedConnection(t *testing.T) {
	w := newWorld(t)
	from, to := [2]int{1, 1}, [2]int{4, 1}
	first := w.placed(from, to, 1)
	if !w.handleCopy(1, 0, segment(from, to, 1, true, packet.FIN|packet.ACK)) {
		t.Fatal("a copy of a FIN is not known for one")
	}
	w.handleCopy(1, 0, segment(from, to, 1, true, packet.FIN|packet.ACK)) // sent again
	if r := w.of(from, to, 1); r.Closed || w.Book.Promised(port(1, 2)) != 10*mbit {
		t.Fatalf("one side has closed: %+v", r)
	}
	w.handleCopy(1, 0, segment(from, to, 1, false, packet.FIN|packet.ACK))
	w.eventually("the promise is free", func() bool { return w.Book.Promised(port(1, 2)) == 0 })
	if len(w.rules.Program("flow/"+first.ID).Rules) == 0 || !w.of(from, to, 1).Closed {
		t.Error("the rules have gone before the last segments")
	}
	if r := w.placed([2]int{1, 2}, [2]int{4, 2}, 2); r.State != StateAccepted || through(r) != "124" {
		t.Errorf("the next flow: %+v", r)
	}
	w.net.change(func() { w.net.dead[[2]int{1, 3}] = true })
	w.handleCopy(1, 0, segment(from, to, 1, true, packet.SYN))
	w.eventually("it is placed anew", func() bool {
		r := w.of(from, to, 1)
		return !r.Closed && r.State == StateBestEffort && r.Reason != ""
	})
}

// A connection that is reset is over at once, and moved nowhere when its path breaks.
func TestResetConnection(t *testing.T) {
	w := newWorld(t)
	from, to := [2]int{1, 1}, [2]int{4, 1}
	w.placed(from, to, 1)
	w.handleCopy(1, 0, segment(from, to, 1, false, packet.RST))
	w.eventually("the promise is free", func() bool { return w.Book.Promised(port(1, 2)) == 0 })
	w.net.change(func() { w.net.dead[[2]int{1, 2}] = true })
	w.reviews.Wake()
	w.eventually("the flow is gone", func() bool { return len(w.Flows()) == 0 })
}

// Segments that close a connection are told from others, and from those that come up
// by other rules.
func TestNotACopy(t *testing.T) {
	w := newWorld(t)
	from, to := [2]int{1, 1}, [2]int{4, 1}
	w.placed(from, to, 1)
	for _, x := range []struct {
		name   string
		cookie uint64
		h      *packet.Headers
	}{
		{"another rule", 7, segment(from, to, 1, true, packet.RST)},
		{"data", 0, segment(from, to, 1, true, packet.ACK)},
		{"another connection", 0, segment(from, to, 2, true, packet.RST)},
	} {
		if w.handleCopy(1, x.cookie, x.h) {
			t.Errorf("%s is taken for a copy", x.name)
		}
	}
	if w.Book.Promised(port(1, 2)) != 10*mbit {
		t.Error("the promise has gone")
	}
}

// Copies are asked for where a connection enters, of switches that can tell.
func TestCopies(t *testing.T) {
	hops := []network.Hop{{Switch: 1, In: 1, Out: 12}, {Switch: 2, In: 21, Out: 24}, {Switch: 4, In: 42, Out: 1}}
	h, _ := match.HeaderOf(headers([2]int{1, 1}, [2]int{4, 1}, 1))
	count := map[openflow.DatapathID]int{}
	for _, r := range copyRules(h, hops, func(network.PortRef) uint32 { return 0 }, func(d openflow.DatapathID) bool { return true }) {
		count[r.Switch]++
	}
	if count[1] != 3 || count[4] != 2 || count[2] != 0 {
		t.Errorf("rules by switch: %v", count)
	}
	if left := copyRules(h, hops, func(network.PortRef) uint32 { return 0 }, func(d openflow.DatapathID) bool { return d == 4 }); len(left) != 2 || left[0].Switch != 4 {
		t.Errorf("of a switch that cannot: %+v", left)
	}
	h.Proto = packet.ProtoUDP
	if len(copyRules(h, hops, func(network.PortRef) uint32 { return 0 }, func(openflow.DatapathID) bool { return true })) != 0 {
		t.Error("UDP has no flags")
	}
}

// A flow of a definition that decides once does not wait; one that was accepted and had
// to give way does.
func TestOnce(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.dead[[2]int{1, 3}] = true })
	if err := w.Definitions.Remove(t.Context(), "bulk", 0); err != nil {
		t.Fatal(err)
	}
	d, faults := Spec{Name: "bulk", Rate: 10 * mbit, Match: match.Flow{TCPDst: "5001"}, Once: true}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if err := w.define(d); err != nil {
		t.Fatal(err)
	}
	first := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	w.placer.end(w.flows.byID[first.ID], "test")
	w.retry(t.Context())
	if r := w.of([2]int{1, 2}, [2]int{4, 2}, 2); r.State != StateBestEffort {
		t.Errorf("accepted later: %+v", r)
	}
	third := w.placed([2]int{1, 3}, [2]int{4, 3}, 3)
	f := w.flows.byID[third.ID]
	w.Book.Release(f.promiseKey())
	f.mu.Lock()
	f.State = StateBestEffort
	f.mu.Unlock()
	w.retry(t.Context())
	if r := w.of([2]int{1, 3}, [2]int{4, 3}, 3); r.State != StateAccepted {
		t.Errorf("accepted at first, and not again: %+v", r)
	}
}
