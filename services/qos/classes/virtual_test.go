package classes

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// A class for a virtual address has no way of its own and says so: the service that has the address
// leads the packets. It is placed anew when the address becomes virtual, or a host's.
func TestClassOfAVirtualAddress(t *testing.T) {
	s, f, e := placed(t)
	f.capacity.Store(10e6)
	virtual := func(all map[netip.Addr]openflow.MAC) {
		t.Helper()
		if err := f.SetVirtual("balance", all); err != nil {
			t.Fatal(err)
		}
	}
	virtual(map[netip.Addr]openflow.MAC{end(3).IP: {}})
	if s.plan.intact(e) {
		t.Error("it is where a host was")
	}
	routes, err := s.plan.choose(t.Context(), e)
	if err != nil || routes == nil || len(routes) != 0 {
		t.Fatalf("ways %v, want none: %v", routes, err)
	}
	e.routes = routes
	if !s.plan.intact(e) {
		t.Error("it is not where the service leads it")
	}
	want := []string{"flows[0]: 10.0.0.3 is a virtual address of the service balance, which forwards its packets: they have the queue where that service carries them for the class, at the ports under carried"}
	if got := s.plan.virtualNotes(&e.class); !slices.Equal(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
	e.class.Latency = time.Second
	var refusal *Refusal
	if _, err := s.plan.choose(t.Context(), e); !errors.As(err, &refusal) || refusal.Field != "latency" {
		t.Errorf("a latency is promised: %v", err)
	}
	virtual(nil)
	if s.plan.intact(e) {
		t.Error("the address is a host's, and it has no way there")
	}
}
