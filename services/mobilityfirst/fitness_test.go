package mobilityfirst

import (
	"context"
	"errors"
	"math"
	stdnet "net"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
)

// A node is full when three reports in a row have a load of at least 90 %, until three are below 85
// %.
func TestFull(t *testing.T) {
	var full fullState
	for i, c := range []struct {
		load float64
		want bool
	}{
		{0.89, false},
		{1, false},
		{1, false},
		{0.8, false},
		{0.9, false},
		{1, false},
		{0.9, true},
		{0.86, true},
		{0.84, true},
		{0, true},
		{0.85, true},
		{0.84, true},
		{0.84, true},
		{0.84, false},
		{0.89, false},
		{1, false},
	} {
		if full.update(c.load); full.full != c.want {
			t.Errorf("%d: at %v: %v", i, c.load, full.full)
		}
	}
}

// A node's reports and its operator's declaration determine its standing.
func TestStanding(t *testing.T) {
	half := nodeStatus{report: nodeapi.Report{Storage: &nodeapi.StorageReport{Bytes: 1, Size: 2}}}
	full := half
	full.full.full = true
	up := agents.State{Liveness: agents.Up}
	drained := up
	drained.Draining = true
	for name, c := range map[string]struct {
		state agents.State
		told  nodeStatus
		want  fitness
	}{
		"up":                 {up, half, fitness{standingFit, 0.5}},
		"full":               {up, full, fitness{standingFull, 0.5}},
		"silent":             {agents.State{Liveness: agents.Silent}, full, fitness{standingSilent, 0.5}},
		"not heard yet":      {agents.State{}, nodeStatus{}, fitness{standingSilent, 0}},
		"draining":           {drained, half, fitness{standingDraining, 0.5}},
		"draining, and full": {drained, full, fitness{standingDraining, 0.5}},
	} {
		if got := fitnessOf(&c.state, &c.told); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Of several places the selected one can be reached, has the best standing, the lowest cost and the
// lowest load, in this order.
func TestBest(t *testing.T) {
	for name, all := range map[string][]candidate{ // the first is the best
		"costs less":            {{3, fitness{standingFit, 0.8}}, {4, fitness{standingFit, 0.1}}},
		"has less to do":        {{3, fitness{standingFit, 0.1}}, {3, fitness{standingFit, 0.8}}},
		"is not full":           {{9, fitness{standingFit, 0.8}}, {1, fitness{standingFull, 0.9}}},
		"full before drained":   {{9, fitness{standingFull, 1}}, {1, fitness{standingDraining, 0}}},
		"drained before silent": {{9, fitness{standingDraining, 1}}, {1, fitness{standingSilent, 0}}},
		"can be reached":        {{1000, fitness{standingDraining, 1}}, {math.MaxInt, fitness{standingFit, 0}}},
		"the first of two":      {{1, fitness{standingFit, 0}}, {1, fitness{standingFit, 0}}},
	} {
		if got := best(all); got != 0 {
			t.Errorf("%s: %d", name, got)
		}
		if len(all) == 2 && all[0] != all[1] && best([]candidate{all[1], all[0]}) != 1 {
			t.Errorf("%s: not if it is the second", name)
		}
	}
}

// If all places are asked, draining ones are left out as long as another place can be expected to
// answer beside the one that has not answered, and at least one is asked.
func TestSpared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := make([]fitness, rapid.IntRange(2, maxPlacesPerName).Draw(t, "places"))
		for i := range all {
			all[i].standing = standing(rapid.IntRange(0, int(standingDraining)).Draw(t, "standing"))
		}
		led := rapid.IntRange(-1, len(all)-1).Draw(t, "led")
		got := notDraining(all, led)
		others := 0
		for i, o := range all {
			if i != led && o.standing < standingDraining {
				others++
			}
			if o.standing != standingDraining && !slices.Contains(got, i) {
				t.Errorf("%d is not asked", i)
			}
		}
		if led >= 0 && !slices.Contains(got, led) {
			t.Errorf("the one that it is led to is not asked")
		}
		for _, i := range got {
			if i != led && all[i].standing == standingDraining && others > 0 {
				t.Errorf("%d drains and is asked", i)
			}
		}
		if others == 0 && len(got) != len(all) {
			t.Errorf("%v of %v are asked", got, all)
		}
		if len(got) == 0 {
			t.Error("none is asked")
		}
	})
}

// declare adds a node that has reported Ethernet addresses and proven a name.
func (w *world) declare(name string, of owner, draining bool, at ...openflow.MAC) {
	w.t.Helper()
	rec, faults := (&NodeSpec{name, "https://192.0.2.1:" + map[string]string{"a": "1", "b": "2", "c": "3"}[name]}).Parse()
	rec.Draining = draining
	if err := errors.Join(faults.Err(), w.nodes.registry.Add(context.Background(), rec)); err != nil {
		w.t.Fatal(err)
	}
	w.nodes.mu.Lock()
	defer w.nodes.mu.Unlock()
	w.nodes.status[name] = &nodeStatus{proven: of.name, report: nodeapi.Report{Name: of.name, MACs: at, Compute: &nodeapi.ComputeReport{}}}
	w.nodes.byName[of.name] = append(w.nodes.byName[of.name], name)
}

// unreachable is a dialer that always fails, so that a test in a bubble uses no real connection.
func unreachable(context.Context, string, string) (stdnet.Conn, error) {
	return nil, errors.New("there is no network")
}

// A request goes to a place with a draining node only if there is no other; an existing path stays.
// A node only counts for the name that it has proven, and at the places that it reports. A node
// cannot harm another by a bad report of the same place.
func TestChooseByNodes(t *testing.T) {
	in(t, Options{Dial: unreachable}, func(w *world) {
		f, other, near, far := numbered(100), numbered(101), host(2, 2), host(3, 3)
		say := func() { w.say(f, near); w.say(f, far); w.sent() }
		say()
		led := func(what string, number int, want ...place) {
			t.Helper()
			w.id++
			to := w.asks(w.hello(numbered(number), host(1, byte(number))), w.id, f.name)
			if !slices.Equal(to, want) {
				t.Errorf("%s: led to %v, want %v", what, to, want)
			}
		}
		led("without nodes", 1, near)
		w.declare("a", other, true, near.MAC, far.MAC)
		if n := w.nodes.fitness(f.name, near); n != (fitness{standingFit, unknownLoad}) {
			t.Errorf("while another name's node drains near is %v", n)
		}
		w.declare("b", f, true, near.MAC)
		for i := range 5 {
			led("near drains", 4+i, far)
		}
		if n := w.nodes.fitness(f.name, near).standing; n != standingDraining {
			t.Errorf("near is %v", n)
		}
		w.declare("c", f, false, near.MAC) // silent, since nobody answers there
		w.pass(10 * time.Second)
		if n := w.nodes.fitness(f.name, near).standing; n != standingDraining {
			t.Errorf("with another node, which is silent, near is %v", n)
		}
		if n := w.nodes.fitness(f.name, far); n != (fitness{standingFit, unknownLoad}) {
			t.Errorf("far is %v", n)
		}
	})
}

// The only one of many places that does not drain is found.
func TestChooseOfManyByNodes(t *testing.T) {
	in(t, Options{Dial: unreachable}, func(w *world) {
		f, fits := numbered(100), host(3, 3)
		var macs []openflow.MAC
		for i := range maxPlacesPerName - 1 {
			at := host(2, byte(10+i))
			w.say(f, at)
			macs = append(macs, at.MAC)
		}
		w.say(f, fits)
		w.sent()
		w.declare("a", f, true, macs...)
		for i := range 10 {
			if to := w.asks(w.hello(numbered(1+i), host(1, byte(100+i))), 1, f.name); !slices.Equal(to, []place{fits}) {
				t.Errorf("led to %v, want %v", to, fits)
			}
		}
	})
}
