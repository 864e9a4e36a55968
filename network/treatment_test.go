package network

import (
	"context"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

// promises is a service that promises one treatment for all packets.
type promises struct {
	to     Treatment
	loaded chan struct{}
	told   []Carried
}

func (p *promises) Loaded() <-chan struct{}                    { return p.loaded }
func (p *promises) Treatment(openflow.Match) (Treatment, bool) { return p.to, true }
func (p *promises) Queue(Carried) uint32                       { return 7 }
func (p *promises) Carry(all []Carried)                        { p.told = all }

// TestNoTreatments checks that without a promising service nothing is promised and nobody waits,
// and the same without a registry.
func TestNoTreatments(t *testing.T) {
	for name, x := range map[string]*Treatments{"no registry": nil, "an empty one": {}} {
		x.Subscribe("carrier", func() {})
		x.Await(t.Context())
		x.Carry([]Carried{{Treatment: "class"}})
		x.Changed()
		if got := x.Of(openflow.Match{}); got != (Treatment{}) || x.Queue(Carried{Treatment: "class"}) != 0 {
			t.Errorf("%s promises %+v", name, got)
		}
	}
}

// TestTreatments checks that carriers learn what is promised and are told of every change, and
// that the promising service learns what is carried.
func TestTreatments(t *testing.T) {
	var x Treatments
	p := &promises{to: Treatment{Name: "class", DSCP: 11}, loaded: make(chan struct{})}
	changes := 0
	x.Promise(p)
	x.Subscribe("carrier", func() { changes++ })
	before := x.Epoch()
	x.Changed()
	if changes != 1 || x.Epoch() == before || !slices.Equal(x.Carriers(), []string{"carrier"}) {
		t.Errorf("%d changes told, epoch %d after %d, carriers %q", changes, x.Epoch(), before, x.Carriers())
	}
	if x.Of(openflow.Match{}) != p.to || x.Queue(Carried{Treatment: "class"}) != 7 || x.Queue(Carried{}) != 0 {
		t.Errorf("%+v is promised, want %+v", x.Of(openflow.Match{}), p.to)
	}
	all := []Carried{{Treatment: "class", At: PortRef{Switch: 1, Port: 2}, Between: true}}
	if x.Carry(all); !slices.Equal(p.told, all) {
		t.Errorf("told of %v, want %v", p.told, all)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x.Await(ctx) // nothing is loaded
	close(p.loaded)
	x.Await(t.Context())
}
