package experiment

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/lab/experiment/flowsim"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/services/qos/subflows"
)

// modelRouter chooses the links of subflows. The service's own code chooses those of placed
// subflows, with the same knowledge as in a network: what links and subflows had carried at the
// last readings, and what it has assigned since. It keeps subflows that have ended until their
// rules have been idle.
type modelRouter struct {
	tree  modelTree
	way   modelWay
	flows []matrixFlow
	seed  uint64

	placer  *subflows.Simulated
	numbers map[reserve.Link]int
	carried []float64 // bytes of each link until the last reading
	used    []uint64  // rates of links in the interval before it, in bit/s
	placed  map[string]modelSubflow
	ended   []modelEnd
}

// modelSubflow identifies a subflow that has been placed.
type modelSubflow struct{ flow, number int }

func (s modelSubflow) name() string { return fmt.Sprintf("%d/%d", s.flow, s.number) }

// modelEnd is a flow that has ended, and the time when its rules are idle.
type modelEnd struct {
	flow int
	idle float64
}

func newModelRouter(t modelTree, w modelWay, flows []matrixFlow, seed uint64) *modelRouter {
	r := &modelRouter{tree: t, way: w, flows: flows, seed: seed}
	if !w.placed {
		return r
	}
	var top *topology.Topology
	top, r.numbers = t.topology(modelLink)
	r.carried, r.used, r.placed = make([]float64, t.links()), make([]uint64, t.links()), map[string]modelSubflow{}
	use := func(at reserve.Link) reserve.Use {
		return reserve.Use{Capacity: modelLink, Used: r.used[r.numbers[at]]}
	}
	r.placer = subflows.NewSimulated(top, use, modelPaths, w.reads())
	return r
}

// modelTime converts a time of the model to one for the service's code.
func modelTime(seconds float64) time.Time {
	return time.Unix(0, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// Route implements flowsim.Router.
func (r *modelRouter) Route(flow, number int, now float64) []int {
	f := r.flows[flow]
	switch {
	case r.way.ideal:
		return []int{r.tree.send(f.from), r.tree.receive(f.to)}
	case r.way.placed && number > 0:
		r.clear(now)
		s := modelSubflow{flow, number}
		hops, err := r.placer.Place(s.name(), uint32(flow), r.tree.at(f.from), r.tree.at(f.to), modelTime(now))
		if err == nil {
			r.placed[s.name()] = s
			return r.pathLinks(f, hops)
		}
	}
	// The same subflow always has the same hash.
	return r.tree.hashed(rand.New(rand.NewPCG(r.seed, uint64(flow)<<8|uint64(number))), f.from, f.to)
}

// pathLinks returns the links of a path between two hosts.
func (r *modelRouter) pathLinks(f matrixFlow, hops []topology.Hop) []int {
	links := []int{r.tree.send(f.from)}
	for _, h := range hops[:len(hops)-1] {
		links = append(links, r.numbers[topology.PortRef{Switch: h.Switch, Port: h.Out}])
	}
	return append(links, r.tree.receive(f.to))
}

// Ended implements flowsim.Router.
func (r *modelRouter) Ended(flow int, now float64) {
	if r.way.placed {
		r.ended = append(r.ended, modelEnd{flow, now + modelIdle.Seconds()})
	}
}

// clear removes the subflows whose rules are idle from the service.
func (r *modelRouter) clear(now float64) {
	for len(r.ended) > 0 && r.ended[0].idle <= now {
		for number := 1; number < r.way.subflows; number++ {
			name := modelSubflow{r.ended[0].flow, number}.name()
			r.placer.End(name)
			delete(r.placed, name)
		}
		r.ended = r.ended[1:]
	}
}

// Read implements flowsim.Router.
func (r *modelRouter) Read(s *flowsim.Sim, now float64) {
	r.clear(now)
	for l := range r.used {
		carried := s.LinkCarried(l)
		r.used[l] = uint64((carried - r.carried[l]) / r.way.reads().Seconds() * modelLink)
		r.carried[l] = carried
	}
	moved := r.placer.Read(modelTime(now), func(name string) uint64 {
		p := r.placed[name]
		carried, _ := s.Carried(p.flow, p.number)
		return uint64(carried * modelLink / 8)
	})
	for name, hops := range moved {
		p := r.placed[name]
		s.Move(p.flow, p.number, r.pathLinks(r.flows[p.flow], hops))
	}
}
