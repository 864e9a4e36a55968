package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
)

const classesPath = "/api/v1/qos/classes"

// matched is how many packets the rules of a class have put into its queues.
func (w *world) matched(class string) (n uint64) {
	w.t.Helper()
	var s classes.Stats
	w.must(w.Get(w.t.Context(), classesPath+"/"+class+"/stats", &s))
	for _, q := range s.Queues {
		n += q.Matched + q.WithoutEffect
	}
	return n
}

// inQueue is how many packets a class's queues have sent on from a switch.
func (w *world) inQueue(class, sw string) (n uint64) {
	w.t.Helper()
	var s classes.Stats
	w.must(w.Get(w.t.Context(), classesPath+"/"+class+"/stats", &s))
	for _, q := range s.Queues {
		if q.Switch == fmt.Sprintf("%016x", w.lab.Switch(sw).DPID()) {
			n += q.Packets
		}
	}
	return n
}

// TestClassBesideSession has a class made for a connection that agents are to carry:
// they do, with the class, and the class has the connections that they do not carry. Its
// packets are in the class's queue everywhere, with tables and in one.
func TestClassBesideSession(t *testing.T) {
	t.Parallel()
	for name, tables := range map[string]func(*lab.Topology){"pairclass": withTables, "pairclass1": oneTable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, name, withAccess, tables)
			entry := w.whitelist()
			w.post(classesPath, classes.ClassSpec{Name: "web", Priority: "0", MinRate: "10000000", Flows: w.web()}, nil)
			w.must(testbed.Poll(t.Context(), "the class to be active", func() error {
				var c classes.Info
				if err := w.Get(t.Context(), classesPath+"/web", &c); err != nil || c.State != classes.StateActive {
					return fmt.Errorf("%s: %s: %w", c.State, c.Reason, err)
				}
				return nil
			}))
			w.isCarried("a carried connection with the class")
			if all, err := w.Sessions(t.Context()); err != nil || all[0].ClassUp != "web" || all[0].ClassDown != "web" {
				t.Errorf("the session's record: %+v, %v; want that both directions have the class", all, err)
			}
			ports := w.downPorts()
			ports[w.port("s0", "client-s0")], ports[w.port("s1", "s0-s1")] = "to the client", "to the client's switch"
			c := w.carriedOn("web", ports, 10_000_000)
			if n := strings.Join(c.Notes, "\n"); strings.Contains(n, "sos") {
				t.Errorf("the class is kept, and says: %q", n)
			}
			w.isCarried("a second carried connection")
			const some = 100 // acknowledgements of a download
			w.must(testbed.Poll(t.Context(), "the session's packets to be counted in the queue", func() error {
				if n := w.inQueue("web", "s0"); n < some {
					return fmt.Errorf("%d packets were in it", n)
				}
				return nil
			}))
			carried := w.inQueue("web", "s0")
			w.must(w.Unlist(t.Context(), entry))
			if n := w.download(); n != 0 {
				t.Errorf("%d sessions carried a connection that is on no whitelist", n)
			}
			w.must(testbed.Poll(t.Context(), "the class to have the connection", func() error {
				if n := w.matched("web"); n < 1000 {
					return fmt.Errorf("%d packets have passed its rules", n)
				}
				return nil
			}))
			t.Logf("packets in the queue at the client's switch: %d of the session, %d after the direct connection", carried, w.inQueue("web", "s0"))
		})
	}
}

// TestCriticalBesideSession has a connection that agents are to carry be critical, too:
// they carry it, and it is critical when they do not.
func TestCriticalBesideSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "paircritical")
	entry := w.whitelist()
	w.post("/api/v1/qos/critical", critical.Spec{
		Name: "web", Rate: 10_000_000, IdleTimeout: "30s",
		Match: match.Flow{IPv4Dst: match.Text(w.addr("server").String()), TCPDst: match.Text(fmt.Sprint(webPort))},
	}, nil)
	flows := func() (all []critical.Record) {
		w.must(w.Get(t.Context(), "/api/v1/qos/flows", &all))
		return all
	}
	if n := w.download(); n != 1 || len(flows()) != 0 {
		t.Errorf("%d sessions carried the connection, want 1; critical flows: %+v", n, flows())
	}
	var defined []critical.DefinitionInfo
	w.must(w.Get(t.Context(), "/api/v1/qos/critical", &defined))
	if n := fmt.Sprint(defined[0].Notes); !strings.Contains(n, "sos comes first") {
		t.Errorf("the definition does not say that SOS has packets of it: %q", n)
	}
	w.must(w.Unlist(t.Context(), entry))
	// Nothing is promised on a link before it has been measured.
	w.must(testbed.Poll(t.Context(), "a connection to be critical", func() error {
		if n := w.download(); n != 0 {
			t.Fatalf("%d sessions carried a connection that is on no whitelist", n)
		}
		all := flows()
		if !slices.ContainsFunc(all, func(f critical.Record) bool { return f.State == critical.StateAccepted }) {
			return fmt.Errorf("critical flows: %+v", all)
		}
		return nil
	}))
}

// TestClassBesideCriticalFlow has a connection be critical and have a class: the class has
// it, queue and way, in tables and in one.
func TestClassBesideCriticalFlow(t *testing.T) {
	t.Parallel()
	for name, tables := range map[string]func(*lab.Topology){"pairboth": withTables, "pairboth1": oneTable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, name, tables)
			w.post("/api/v1/qos/critical", critical.Spec{
				Name: "web", Rate: 10_000_000, IdleTimeout: "30s",
				Match: match.Flow{IPv4Dst: match.Text(w.addr("server").String()), TCPDst: match.Text(fmt.Sprint(webPort))},
			}, nil)
			w.post(classesPath, classes.ClassSpec{Name: "web", Priority: "0", MinRate: "10000000", Flows: w.web()}, nil)
			if n := w.download(); n != 0 {
				t.Errorf("%d sessions carried the connection", n)
			}
			w.must(testbed.Poll(t.Context(), "the connection's packets to be counted in the queue", func() error {
				if m, n := w.matched("web"), w.inQueue("web", "s1"); m < 1000 || n < 100 {
					return fmt.Errorf("%d passed the rules, %d were in the queue at s1", m, n)
				}
				return nil
			}))
			var flows []critical.Record
			if w.must(w.Get(t.Context(), "/api/v1/qos/flows", &flows)); len(flows) != 0 {
				t.Errorf("critical beside the class: %+v", flows)
			}
		})
	}
}
