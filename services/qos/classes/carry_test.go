package classes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/mark"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// addTCP has a class provisioned for connections to port 80 of the third host.
func (x *setting) addTCP(name string, change func(*ClassSpec)) Info {
	x.t.Helper()
	spec := ClassSpec{Name: name, Priority: "1", MinRate: "6000000", Flows: []match.Flow{{IPv4Src: "10.0.0.1", IPv4Dst: "10.0.0.3", TCPDst: "80"}}}
	if change != nil {
		change(&spec)
	}
	class, faults := spec.Parse()
	if len(faults) > 0 {
		x.t.Fatal(faults)
	}
	info, err := x.Add(x.t.Context(), class)
	if err != nil {
		x.t.Fatal(err)
	}
	return info
}

// connection is what a carrier knows about the packets of one connection.
func connection(more ...openflow.OXM) openflow.Match {
	return openflow.MustMatch(append([]openflow.OXM{
		openflow.InPort(1), openflow.EthType(0x0800), openflow.IPProto(6), openflow.IPSrc(end(1).IP), openflow.IPDst(end(3).IP), openflow.TCPSrc(5000), openflow.TCPDst(80),
	}, more...)...)
}

// A connection has the treatment of the first class that has its packets, as far as it is
// known what they are.
func TestTreatmentIsTheClass(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.addTCP("low", func(s *ClassSpec) { s.Priority, s.MinRate = "3", "100000" })
	x.addTCP("high", func(s *ClassSpec) { s.MinRate, s.Flows[0].TCPDst, s.Flows[0].TCPSrc = "100000", "", "5000" })
	x.addTCP("marked", func(s *ClassSpec) {
		s.Priority, s.MinRate, s.Flows[0].IPDSCP, s.Flows[0].TCPDst = "0", "100000", "46", "443"
	})
	of := func(m openflow.Match) string {
		got, ok := promises(x.Service).Treatment(m)
		if ok != (got.Name != "") {
			t.Errorf("{%v}: %+v, %v", m, got, ok)
		}
		return got.Name
	}
	other := openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.IPSrc(end(1).IP), openflow.IPDst(end(1).IP), openflow.TCPSrc(5000), openflow.TCPDst(80))
	later := openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.IPSrc(end(1).IP), openflow.IPDst(end(3).IP), openflow.TCPSrc(5001), openflow.TCPDst(80))
	secure := openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.IPSrc(end(1).IP), openflow.IPDst(end(3).IP), openflow.TCPSrc(5001), openflow.TCPDst(443))
	for _, c := range []struct {
		name string
		m    openflow.Match
		want string
	}{
		{"of both", connection(), "high"},
		{"of one", later, "low"},
		{"to another host", other, ""},
		{"of a DSCP that the userspace datapath could not give back", connection(openflow.IPDSCP(10)), ""},
		{"of a DSCP that is not known yet", secure, "marked"},
	} {
		if got := of(c.m); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got, _ := promises(x.Service).Treatment(secure); got.Own != 46 {
		t.Errorf("its packets' own DSCP is %d, want 46", got.Own)
	}
	if err := x.Declared.Remove(t.Context(), "high", 0); err != nil {
		t.Fatal(err)
	}
	if got := of(connection()); got != "low" {
		t.Errorf("when the first is gone: %q, want the second", got)
	}
}

// Every class has a DSCP between carriers that means nothing else anywhere, until none is
// left, which it says.
func TestDSCPBetweenCarriersIsUnique(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.fabric.capacity.Store(10e9)
	means := map[uint8]string{0: "nothing"}
	for i := range len(marks)/2 + 1 {
		name, port := fmt.Sprint("c", i), uint16(1000+i)
		info := x.addTCP(name, func(s *ClassSpec) { s.MinRate, s.Flows[0].TCPDst = "12000", match.Text(fmt.Sprint(port)) })
		got, ok := promises(x.Service).Treatment(openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.IPSrc(end(1).IP), openflow.IPDst(end(3).IP), openflow.TCPDst(port)))
		if !ok || got.Name != name {
			t.Fatalf("class %s: %+v, %v", name, got, ok)
		}
		if got.DSCP == 0 {
			if c, _ := x.Class(name); i < len(marks)/2 || !strings.Contains(strings.Join(c.Notes, "\n"), "no DSCP is left") {
				t.Errorf("class %s has none; notes %q", name, c.Notes)
			}
			continue
		}
		for what, dscp := range map[string]uint8{"its mark": *info.Mark, "its DSCP between carriers": got.DSCP} {
			if means[dscp] != "" {
				t.Errorf("class %s: %s is %d, which is %s", name, what, dscp, means[dscp])
			}
			means[dscp] = what + " of class " + name
		}
	}
}

var (
	sidePort    = topology.PortRef{Switch: 1, Port: 1}
	betweenPort = topology.PortRef{Switch: 2, Port: 3}
)

// carryBoth says that connections of a class are carried at both ports.
func (x *setting) carryBoth(class string) {
	promises(x.Service).Carry([]network.Carried{{Treatment: class, At: sidePort}, {Treatment: class, At: betweenPort, Between: true}})
	x.carryAll(x.t.Context())
}

// Where connections of a class are carried, it has its queue and its promise, and packets
// that bear its DSCP keep it.
func TestClassIsKeptWhereItIsCarried(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	info := x.addTCP("web", nil)
	treatment, _ := promises(x.Service).Treatment(connection())
	side := network.Carried{Treatment: "web", At: sidePort}
	promises(x.Service).Carry([]network.Carried{side})
	if q := promises(x.Service).Queue(side); q != 0 {
		t.Errorf("queue %d is to be used before it is there", q)
	}
	x.carryBoth("web")
	if q := promises(x.Service).Queue(side); q != info.Queue {
		t.Errorf("queue %d towards an agent, want %d", q, info.Queue)
	}
	if q := promises(x.Service).Queue(network.Carried{Treatment: "web", At: betweenPort, Between: true}); q != 0 {
		t.Errorf("queue %d between agents: a userspace datapath would change the DSCP", q)
	}
	if q, ok := x.bases[1].queue(sidePort.Port); !ok || q.MinRate != 6e6 || q.Tags[mark.TagKept] != "" {
		t.Errorf("towards an agent: %+v, %v", q, ok)
	}
	if q, ok := x.bases[2].queue(betweenPort.Port); !ok || q.MinRate != 6e6 || q.Tags[mark.TagKept] != strconv.Itoa(int(treatment.DSCP)) {
		t.Errorf("between agents, DSCP %d: %+v, %v", treatment.DSCP, q, ok)
	}
	for _, at := range []topology.PortRef{sidePort, betweenPort} {
		if left := x.Book.Available(at, reserve.Key{}); left != 4e6 {
			t.Errorf("%d bit/s are left at %v, want 4000000", left, at)
		}
	}
	eventually(t, "notes stay", func() bool { now, _ := x.Class("web"); return len(now.Notes) == 1 }) // that of fragments
	now, _ := x.Class("web")
	if len(now.Carried) != 2 || now.Carried[0].MinRate != 6e6 || now.DSCP == nil || *now.DSCP != treatment.DSCP {
		t.Errorf("%+v", now)
	}
	x.classes.mu.Lock()
	for _, p := range x.classes.byName["web"].carriage.ports {
		p.used = time.Now().Add(-carryTimeout - time.Second)
	}
	x.classes.byName["web"].carriage.asked = time.Now().Add(-carryTimeout - time.Second)
	x.classes.mu.Unlock()
	x.carryAll(t.Context())
	if _, ok := x.bases[1].queue(sidePort.Port); ok || x.Book.Available(sidePort, reserve.Key{}) != 10e6 || promises(x.Service).Queue(side) != 0 {
		t.Error("what is not carried any more has its queue and its promise still")
	}
	if now, _ := x.Class("web"); len(now.Carried) != 0 || now.DSCP != nil {
		t.Errorf("%+v", now)
	}
}

// A class that agents do not carry has no note about a DSCP for that: not after a restart, nor
// when they have not carried it for long.
func TestNoNoteWhereNothingIsCarried(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.addTCP("web", nil)
	without := func(s *Service, when string) {
		t.Helper()
		if c, _ := s.Class("web"); strings.Contains(strings.Join(c.Notes, "\n"), "DSCP") {
			t.Errorf("%s: notes %q", when, c.Notes)
		}
	}
	restart := func() *Service {
		next := x.service()
		t.Cleanup(next.tasks.Stop)
		if err := next.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		return next
	}
	without(x.Service, "at first")
	without(restart(), "after a restart")
	promises(x.Service).Treatment(connection())
	x.carryBoth("web")
	without(x.Service, "while it is carried")
	x.classes.mu.Lock()
	e := x.classes.byName["web"]
	e.carriage.asked = time.Now().Add(-carryTimeout - time.Second)
	for _, p := range e.carriage.ports {
		p.used = e.carriage.asked
	}
	x.classes.mu.Unlock()
	x.carryAll(t.Context())
	without(x.Service, "long after it was carried")
	without(restart(), "after a restart then")
}

// Where the rate of a class is not left, it is told that nothing is guaranteed, and it is as
// soon as there is room.
func TestCarriedWithoutRoom(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.addTCP("first", nil)
	x.addTCP("second", func(s *ClassSpec) { s.MinRate, s.Flows[0].TCPDst = "3000000", "81" })
	x.carryBoth("first")
	x.fabric.capacity.Store(8e6)
	x.carryBoth("second")
	notes := func(name string) string { c, _ := x.Class(name); return strings.Join(c.Notes, "\n") }
	if n := notes("second"); !strings.Contains(n, "nothing is guaranteed there") || !strings.Contains(n, sidePort.String()) {
		t.Errorf("notes %q", n)
	}
	if !slices.Contains(x.published(), "qos.class.not-carried") {
		t.Errorf("events %v", x.published())
	}
	if c, _ := x.Class("second"); c.Carried[0].MinRate != minQueueRate {
		t.Errorf("%+v", c.Carried)
	}
	if err := x.Declared.Remove(t.Context(), "first", 0); err != nil {
		t.Fatal(err)
	}
	x.carryAll(t.Context())
	if n := notes("second"); strings.Contains(n, "guaranteed") {
		t.Errorf("with room again: notes %q", n)
	}
	if c, _ := x.Class("second"); c.Carried[0].MinRate != 3e6 {
		t.Errorf("%+v", c.Carried)
	}
}

// A switch without a database is told of, and costs the other ports nothing.
func TestCarriedWithoutDatabase(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.addTCP("web", nil)
	away := topology.PortRef{Switch: 77, Port: 1}
	promises(x.Service).Carry([]network.Carried{{Treatment: "web", At: away}, {Treatment: "web", At: sidePort}})
	x.carryAll(t.Context())
	if q := promises(x.Service).Queue(network.Carried{Treatment: "web", At: sidePort}); q == 0 {
		t.Error("another switch's ports do without the queue")
	}
	c, _ := x.Class("web")
	if n := strings.Join(c.Notes, "\n"); promises(x.Service).Queue(network.Carried{Treatment: "web", At: away}) != 0 || !strings.Contains(n, "without the queue at port "+away.String()) {
		t.Errorf("notes %q", n)
	}
}

// After a restart a class is kept where it was carried, before any carrier has said so.
func TestCarriedAfterRestart(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	info := x.addTCP("web", nil)
	treatment, _ := promises(x.Service).Treatment(connection())
	x.carryBoth("web")
	next := x.service()
	t.Cleanup(next.tasks.Stop)
	if err := next.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if q := promises(next).Queue(network.Carried{Treatment: "web", At: sidePort}); q != info.Queue {
		t.Errorf("queue %d, want %d", q, info.Queue)
	}
	if got, _ := promises(next).Treatment(connection()); got != treatment {
		t.Errorf("%+v, want %+v", got, treatment)
	}
	if left := next.Book.Available(betweenPort, reserve.Key{}); left != 4e6 {
		t.Errorf("%d bit/s are left, want 4000000", left)
	}
}
