package pairs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/qos/bandwidth"
	"github.com/sluice-net/sluice/qos/latency"
	"github.com/sluice-net/sluice/qos/match"
)

const classesPath = "/api/v1/qos/classes"

// matched is how many packets the rules of a class have put into its queues.
func (w *world) matched(class string) (n uint64) {
	w.t.Helper()
	var s latency.Stats
	w.must(w.Get(w.t.Context(), classesPath+"/"+class+"/stats", &s))
	for _, q := range s.Queues {
		n += q.Matched + q.WithoutEffect
	}
	return n
}

// TestClassBesideSession has a class made for a connection that agents are to carry:
// they do, and the class has the connections that they do not carry.
func TestClassBesideSession(t *testing.T) {
	w := newWorld(t, "pairclass")
	entry := w.whitelist()
	w.post(classesPath, latency.ClassSpec{Name: "web", Priority: "0", MinRate: "10000000", Flows: w.web()}, nil)
	if n := w.download(); n != 1 {
		t.Errorf("with the class, %d sessions carried the connection, want 1", n)
	}
	notes := func() string {
		var c latency.Info
		w.must(w.Get(t.Context(), classesPath+"/web", &c))
		return strings.Join(c.Notes, "\n")
	}
	if n := notes(); !strings.Contains(n, "sos comes first") {
		t.Errorf("the class does not say that SOS has packets of it: %q", n)
	}
	w.must(w.Unlist(t.Context(), entry))
	if n := w.download(); n != 0 {
		t.Errorf("%d sessions carried a connection that is on no whitelist", n)
	}
	w.must(stage.Poll(t.Context(), "the class to have the connection", func() error {
		if n := w.matched("web"); n < 1000 {
			return fmt.Errorf("%d packets have passed its rules", n)
		}
		return nil
	}))
	w.must(stage.Poll(t.Context(), "the class to have all its packets", func() error {
		if n := notes(); strings.Contains(n, "sos comes first") {
			return errors.New(n)
		}
		return nil
	}))
}

// TestCriticalBesideSession has a connection that agents are to carry be critical, too:
// they carry it, and it is critical when they do not.
func TestCriticalBesideSession(t *testing.T) {
	w := newWorld(t, "paircritical")
	entry := w.whitelist()
	w.post("/api/v1/qos/critical", bandwidth.Spec{
		Name: "web", Rate: 10_000_000, IdleTimeout: "30s",
		Match: match.Flow{IPv4Dst: match.Text(w.addr("server").String()), TCPDst: match.Text(fmt.Sprint(webPort))},
	}, nil)
	flows := func() (all []bandwidth.Record) {
		w.must(w.Get(t.Context(), "/api/v1/qos/flows", &all))
		return all
	}
	if n := w.download(); n != 1 || len(flows()) != 0 {
		t.Errorf("%d sessions carried the connection, want 1; critical flows: %+v", n, flows())
	}
	var defined []bandwidth.DefinitionInfo
	w.must(w.Get(t.Context(), "/api/v1/qos/critical", &defined))
	if n := fmt.Sprint(defined[0].Notes); !strings.Contains(n, "sos comes first") {
		t.Errorf("the definition does not say that SOS has packets of it: %q", n)
	}
	w.must(w.Unlist(t.Context(), entry))
	if n := w.download(); n != 0 || len(flows()) != 1 || flows()[0].State != bandwidth.StateAccepted {
		t.Errorf("%d sessions carried a connection that is on no whitelist; critical flows: %+v", n, flows())
	}
}
