package kit

import (
	"testing"

	"github.com/sluice-net/sluice/network"
)

// TestParts checks that the parts of an owner have separate keys, become ready together, and are
// notified of their own rules.
func TestParts(t *testing.T) {
	b := &board{rules: map[string]int{}, stuck: map[string]error{}}
	o := &Owner{ledger: b, parts: map[string]*Part{}}
	hosts, flows := o.Part("hosts"), o.Part("flows")
	var told []string
	flows.OnRemoved = func(r network.Removed) { told = append(told, r.Name) }
	for i, p := range []*Part{hosts, flows} {
		if err := p.Apply(t.Context(), "a", network.Program{Rules: make([]network.Rule, i+1)}, network.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if !b.has(map[string]int{"hosts/a": 1, "flows/a": 2}) {
		t.Errorf("%v", b.rules)
	}
	for _, name := range []string{"hosts/a", "flows/a/b", "others/a", "flows"} {
		o.removed(network.Removed{Installed: network.InstalledRule{Name: name}})
	}
	if len(told) != 2 || told[0] != "a/b" || told[1] != "" {
		t.Errorf("told of %q", told)
	}
	hosts.Ready()
	hosts.Ready()
	if b.isReady() {
		t.Error("ready before its last part is")
	}
	if flows.Ready(); !b.isReady() {
		t.Error("not ready although its parts are")
	}
	if err := hosts.Remove(t.Context(), "a"); err != nil || !b.has(map[string]int{"flows/a": 2}) {
		t.Errorf("%v, %v", err, b.rules)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name is taken twice")
		}
	}()
	o.Part("hosts")
}
