package critical

import (
	"errors"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/services/qos/match"
)

// What is not configured any more is withdrawn at the next start with its flows; what was
// defined by the API stays.
func TestConfiguredDefinitionGoes(t *testing.T) {
	w := newWorld(t)
	d, faults := Spec{Name: "other", Rate: mbit, Match: match.Flow{TCPDst: "5002"}}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if err := w.define(d); err != nil {
		t.Fatal(err)
	}
	restart := func() {
		w.stop()
		w.rules = servicetest.NewLedger()
		w.start()
	}
	w.fixed = map[string]*Definition{"bulk": w.Definitions.Items()[0].Value} // in the place of the same one
	restart()
	if f := w.placed([2]int{1, 1}, [2]int{4, 1}, 1); f.State != StateAccepted {
		t.Fatalf("%+v", f)
	}
	restart()
	all, flows := w.show(w.Definitions.Items()), w.Flows()
	if len(all) != 2 || len(flows) != 1 {
		t.Errorf("as configured: %+v, %+v", all, flows)
	}
	for _, d := range all {
		origin, fixed := api.OriginAPI, d.Name == "bulk"
		if fixed {
			origin = api.OriginFile
			if err := w.Definitions.Remove(t.Context(), d.Name, 0); !errors.Is(err, kit.ErrConfigured) {
				t.Errorf("withdrawn by the API: %v", err)
			}
			if err := w.define(w.fixed["bulk"]); !errors.Is(err, kit.ErrConfigured) {
				t.Errorf("defined by the API: %v", err)
			}
		}
		if d.Origin != origin {
			t.Errorf("%s comes from %q, want %q", d.Name, d.Origin, origin)
		}
	}
	w.fixed = nil
	for range 2 {
		restart()
		if all, flows := w.Definitions.Items(), w.Flows(); len(all) != 1 || all[0].Name != "other" || len(flows) != 0 {
			t.Errorf("not configured any more: %+v, %+v", all, flows)
		}
		if promises := w.Book.Promises(); len(promises) != 0 {
			t.Errorf("promises %+v", promises)
		}
		if kept, err := w.store.List(t.Context(), flowPrefix); err != nil || len(kept) != 0 {
			t.Errorf("%d flows are stored, %v", len(kept), err)
		}
	}
}

// What changes in the configuration while the service runs ends its flows, and what does
// not goes on.
func TestReconfigure(t *testing.T) {
	w := newWorld(t)
	define := func(name string, rate units.Rate, port string) *Definition {
		d, faults := Spec{Name: name, Rate: rate, Match: match.Flow{TCPDst: match.Text(port)}}.Parse()
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		return d
	}
	reconfigure := func(configured ...*Definition) (definitions, flows int) {
		t.Helper()
		all := map[string]*Definition{}
		for _, d := range configured {
			all[d.Name] = d
		}
		if err := w.Definitions.Configure(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		return len(w.Definitions.Items()), len(w.Flows())
	}
	if err := w.Definitions.Remove(t.Context(), "bulk", 0); err != nil {
		t.Fatal(err)
	}
	if err := w.define(define("made", mbit, "5009")); err != nil {
		t.Fatal(err)
	}
	if d, _ := reconfigure(define("bulk", 10*mbit, "5001")); d != 2 {
		t.Fatalf("%d definitions", d)
	}
	if f := w.placed([2]int{1, 1}, [2]int{4, 1}, 1); f.State != StateAccepted {
		t.Fatalf("%+v", f)
	}
	if d, f := reconfigure(define("bulk", 10*mbit, "5001"), define("new", mbit, "5002")); d != 3 || f != 1 {
		t.Errorf("beside a new one: %d definitions, %d flows", d, f)
	}
	if d, f := reconfigure(define("bulk", 5*mbit, "5001")); d != 2 || f != 0 || len(w.Book.Promises()) != 0 {
		t.Errorf("changed: %d definitions, %d flows, %v", d, f, w.Book.Promises())
	}
	if d, _ := reconfigure(); d != 1 || w.Definitions.Items()[0].Name != "made" {
		t.Errorf("withdrawn: %+v", w.Definitions.Items())
	}
}
