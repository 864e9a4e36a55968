package bandwidth

import (
	"errors"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/match"
)

// What is not configured any more is withdrawn at the next start with its flows; what was
// defined by the API stays.
func TestConfiguredDefinitionGoes(t *testing.T) {
	w := newWorld(t)
	d, faults := Spec{Name: "other", Rate: mbit, Match: match.Flow{TCPDst: "5002"}}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if err := w.Define(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	restart := func() {
		w.stop()
		w.rules = &fakeRules{applied: map[string]network.Program{}, bytes: map[string]uint64{}}
		w.start()
	}
	w.fixed = []*Definition{w.definitions[0]} // in the place of the same one
	restart()
	if f := w.placed([2]int{1, 1}, [2]int{4, 1}, 1); f.State != StateAccepted {
		t.Fatalf("%+v", f)
	}
	restart()
	all, flows := w.Definitions(), w.Flows()
	if len(all) != 2 || len(flows) != 1 {
		t.Errorf("as configured: %+v, %+v", all, flows)
	}
	for _, d := range all {
		origin, fixed := api.OriginAPI, d.Name == w.fixed[0].Name
		if fixed {
			origin = api.OriginFile
			if err := w.Withdraw(t.Context(), d.Name); !errors.Is(err, ErrConfigured) {
				t.Errorf("withdrawn by the API: %v", err)
			}
			if err := w.Define(t.Context(), w.fixed[0]); !errors.Is(err, ErrConfigured) {
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
		if all, flows := w.Definitions(), w.Flows(); len(all) != 1 || all[0].Name != "other" || len(flows) != 0 {
			t.Errorf("not configured any more: %+v, %+v", all, flows)
		}
		if promises := w.book.Promises(); len(promises) != 0 {
			t.Errorf("promises %+v", promises)
		}
		if kept, err := w.store.List(t.Context(), flowPrefix); err != nil || len(kept) != 0 {
			t.Errorf("%d flows are stored, %v", len(kept), err)
		}
	}
}
