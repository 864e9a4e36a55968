package classes

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/services/qos/match"
)

// addFlows has a class of a priority provisioned.
func (x *setting) addFlows(name string, priority match.Text, flows ...match.Flow) Info {
	x.t.Helper()
	spec := ClassSpec{Name: name, Priority: priority, Flows: flows}
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

func udp(ports match.Text) match.Flow {
	return match.Flow{IPv4Src: "10.0.0.1", IPv4Dst: "10.0.0.3", UDPDst: ports}
}

// A class of which another one of higher priority has all packets says so, whichever came
// first, until that one has gone.
func TestShadowedClass(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	if low := x.addFlows("low", "3", udp("7000"), udp("7001")); low.State != StateActive {
		t.Fatalf("%s: %s", low.State, low.Reason)
	}
	x.addFlows("high", "1", udp("7000-7007"))
	low, _ := x.Class("low")
	if low.State != StateIneffective || !strings.Contains(low.Reason, "the class high") {
		t.Errorf("with all its packets in another class: %s, %q", low.State, low.Reason)
	}
	if later := x.addFlows("later", "3", udp("7002")); later.State != StateIneffective {
		t.Errorf("a class that never has a packet is %s", later.State)
	}
	if err := x.Declared.Remove(t.Context(), "high", 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range x.Classes() {
		if c.State != StateActive || c.Reason != "" {
			t.Errorf("%s, alone: %s, %q", c.Name, c.State, c.Reason)
		}
	}
	kinds := slices.DeleteFunc(x.published(), func(k string) bool { return !strings.HasSuffix(k, "effective") })
	want := []string{"qos.class.ineffective", "qos.class.ineffective", "qos.class.effective", "qos.class.effective"}
	if !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
}

// What is another class's in part, what switches decide, and that fragments have no ports
// is said at the request.
func TestNotes(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	if n := x.addFlows("all", "5", match.Flow{IPv4Src: "10.0.0.1", IPv4Dst: "10.0.0.3"}).Notes; len(n) != 0 {
		t.Errorf("a class without ports, alone: %q", n)
	}
	ports := x.addFlows("ports", "3", udp("7000-7001"))
	if len(ports.Notes) != 1 || !strings.Contains(ports.Notes[0], "fragments") {
		t.Errorf("a class with ports: %q", ports.Notes)
	}
	if c, _ := x.Class("all"); len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "class ports of higher priority") || c.State != StateActive {
		t.Errorf("a class that has lost some packets: %s, %q", c.State, c.Notes)
	}
	same := x.addFlows("same", "3", match.Flow{IPv4Src: "10.0.0.1", IPv4Dst: "10.0.0.3", UDPSrc: "5"})
	if len(same.Notes) != 2 || !strings.Contains(same.Notes[0], "class ports of the same priority") || same.State != StateActive {
		t.Errorf("classes of one priority: %s, %q", same.State, same.Notes)
	}
	if other := x.addFlows("other", "3", udp("7002")); len(other.Notes) != 2 { // its own, and that of "same"
		t.Errorf("%q", other.Notes)
	}
}

// After a restart classes still know of each other.
func TestOverlapsAfterRestart(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.addFlows("high", "1", udp("7000"))
	x.addFlows("low", "3", udp("7000"))
	if low, _ := x.another().Class("low"); low.State != StateIneffective {
		t.Errorf("%s: %s", low.State, low.Reason)
	}
}
