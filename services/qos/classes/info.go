package classes

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

// Info is a class as the API shows it.
type Info struct {
	Name     string       `json:"name"`
	MinRate  units.Rate   `json:"min_rate,omitempty" doc:"As requested; left out: the configured share of each link"`
	MaxRate  units.Rate   `json:"max_rate,omitempty" doc:"As requested; left out: each link's own"`
	Latency  float64      `json:"latency_milliseconds,omitempty" doc:"Required latency"`
	Priority uint8        `json:"priority"`
	Flows    []match.Flow `json:"flows"`
	Origin   string       `json:"origin" enum:"file,api" doc:"Where it is declared and can be changed: the configuration file or the API"`

	State    string      `json:"state" enum:"provisioning,active,degraded,ineffective"`
	Reason   string      `json:"reason,omitempty" doc:"What is wrong, if it is not active"`
	Notes    []string    `json:"notes,omitempty" doc:"Packets of its flows that it does not get although nothing is wrong: those of another class or service, and fragments"`
	Accepted *time.Time  `json:"accepted,omitempty"`
	Queue    uint32      `json:"queue" doc:"Its queue's number at every port"`
	Mark     *uint8      `json:"mark,omitempty" doc:"DSCP by which userspace datapaths identify its packets; it never leaves a switch"`
	Paths    []RouteInfo `json:"paths"`
	Ports    []PortInfo  `json:"ports"`
	DSCP     *uint8      `json:"dscp,omitempty" doc:"DSCP of its packets between agents that carry them; end hosts never see it"`
	Carried  []PortInfo  `json:"carried" doc:"The same at ports where its connections are carried, until some minutes after that; notes say what is missing there"`
}

// RouteInfo is the route of one flow.
type RouteInfo struct {
	Flow    int       `json:"flow" doc:"Index of the flow"`
	Tree    bool      `json:"tree,omitempty" doc:"The flow's source is open: one hop for each switch"`
	Latency float64   `json:"latency_milliseconds" doc:"Measured latency of its links when it was chosen, without what waits in the queue of traffic that has no class"`
	Hops    []HopInfo `json:"hops"`
}

// HopInfo is one switch of a route.
type HopInfo struct {
	Switch string `json:"switch"`
	In     uint32 `json:"in,omitempty"`
	Out    uint32 `json:"out"`
}

// PortInfo holds the rates of the class at one port.
type PortInfo struct {
	Switch  string `json:"switch"`
	Port    uint32 `json:"port"`
	MinRate uint64 `json:"min_rate_bits_per_second"`
	MaxRate uint64 `json:"max_rate_bits_per_second"`
}

// Stats holds the counters of a class's queues.
type Stats struct {
	Name   string       `json:"name"`
	State  string       `json:"state"`
	Reason string       `json:"reason,omitempty"`
	Queues []QueueStats `json:"queues" doc:"One for each port by which the class leaves a switch; none before the first reading"`
}

// QueueStats holds the counters of one queue.
type QueueStats struct {
	Switch        string    `json:"switch"`
	Port          uint32    `json:"port"`
	Queue         uint32    `json:"queue"`
	Time          time.Time `json:"time" doc:"When it was read"`
	Bytes         uint64    `json:"bytes"`
	Packets       uint64    `json:"packets"`
	Drops         uint64    `json:"drops"`
	BitRate       float64   `json:"bits_per_second" doc:"Since the reading before"`
	PacketRate    float64   `json:"packets_per_second"`
	DropRate      float64   `json:"drops_per_second"`
	Matched       uint64    `json:"matched" doc:"Packets that the rules have put into the queue"`
	WithoutEffect uint64    `json:"without_effect" doc:"Packets of the class's flows that no queue could be given, because their DSCP is another one"`
	Fault         string    `json:"fault,omitempty" doc:"Why the queue has no effect"`
}

// infos returns classes as the API shows them.
func (s *Service) infos(entries ...*entry) []Info {
	flows := make([][]openflow.Match, len(entries))
	for i, e := range entries {
		flows[i] = e.class.matches()
	}
	over := s.Rules.Shadowed(rule.StageWay, rule.WayClass, flows)
	carriers := s.Treatments.Carriers()
	s.classes.mu.Lock()
	defer s.classes.mu.Unlock()
	out := make([]Info, len(entries))
	for i, e := range entries {
		out[i] = s.info(e)
		// Services that carry connections keep the class's promises; notes say where they do not.
		over[i] = slices.DeleteFunc(over[i], func(o rule.Shadowing) bool { return slices.Contains(carriers, o.Owner) })
		for _, o := range over[i] {
			out[i].Notes = append(out[i].Notes, o.String()+": "+consequence(o))
		}
	}
	return out
}

// consequence describes what packets of a class lack that another service's rules match first. The
// class's rules set the queue at the switches of the class's route, for packets with the headers
// that its flows name.
func consequence(o rule.Shadowing) string {
	kept := "those that it takes follow its path, in the queue at the ports where the class has one"
	if o.Rewrites {
		kept = "those that it takes follow its path, and it rewrites their headers: they have the queue only where they come to a switch of the class's path with the headers that its flows name"
	}
	switch {
	case !o.Tables:
		return "those that it takes go without the queue"
	case !o.OneTable:
		return kept
	}
	return kept + "; on switches with one table without the queue"
}

// stateOf returns the state of a class, and what is wrong if it is not active. A class is degraded
// as soon as its guaranteed rate no longer fits, not only after it was moved or its rate suspended:
// after a start, that may take until the network is known. The table's lock is held.
func (p *planner) stateOf(e *entry) (state, reason string) {
	if e.state == StateActive || e.state == StateIneffective {
		if short := p.Book.Overbooked(bookKey(e.class.Name)); short != nil {
			return StateDegraded, fmt.Sprintf("its guaranteed rate does not fit any more: %v", short)
		}
	}
	return e.state, e.reason
}

// info returns a class as the API shows it. The table's lock is held.
func (s *Service) info(e *entry) Info {
	c := &e.class
	state, reason := s.plan.stateOf(e)
	i := Info{
		Name: c.Name, MinRate: units.Rate(c.MinRate), MaxRate: units.Rate(c.MaxRate), Latency: milliseconds(c.Latency), Priority: c.Priority, Flows: c.Spec.Flows,
		State: state, Reason: reason, Queue: e.queue, Paths: []RouteInfo{}, Ports: s.portInfos(e, portsOf(e.routes)),
		Carried: s.portInfos(e, e.carriage.portList()), Notes: slices.Concat(e.notes(), s.plan.virtualNotes(c), s.queues.carriedNotes(e)),
	}
	x, _ := s.Declared.Item(c.Name)
	i.Origin = api.Origin(x.Configured)
	if !e.accepted.IsZero() {
		at := e.accepted
		i.Accepted = &at
	}
	if e.mark != 0 {
		mark := e.mark
		i.Mark = &mark
	}
	for _, r := range e.routes {
		x := RouteInfo{Flow: r.Flow, Tree: r.Tree, Latency: milliseconds(r.Latency), Hops: []HopInfo{}}
		for _, h := range r.Hops {
			x.Hops = append(x.Hops, HopInfo{h.Switch.String(), h.In, h.Out})
		}
		i.Paths = append(i.Paths, x)
	}
	if dscp := e.carriage.dscp; dscp != 0 {
		i.DSCP = &dscp
	}
	return i
}

// portInfos returns the rates of a class at ports. The table's lock is held.
func (s *Service) portInfos(e *entry, ports []place) []PortInfo {
	out := []PortInfo{}
	for _, at := range ports {
		has := s.plan.currentRates(e, at, s.Network.Capacity(at))
		out = append(out, PortInfo{at.Switch.String(), at.Port, has.min, has.max})
	}
	return out
}

// Classes returns all classes, ordered by name.
func (s *Service) Classes() []Info {
	return s.infos(s.classes.filter(all)...)
}

// Class returns the class with the given name, and reports whether it exists.
func (s *Service) Class(name string) (Info, bool) {
	e := s.classes.get(name)
	if e == nil {
		return Info{}, false
	}
	return s.infos(e)[0], true
}

// Stats returns the counters of a class's queues, and reports whether the class exists.
func (s *Service) Stats(name string) (Stats, bool) {
	s.classes.mu.Lock()
	defer s.classes.mu.Unlock()
	e := s.classes.byName[name]
	if e == nil {
		return Stats{}, false
	}
	out := Stats{Name: name, Queues: []QueueStats{}}
	out.State, out.Reason = s.plan.stateOf(e)
	for _, at := range e.ports() {
		x := e.samples[at]
		if x == nil {
			continue
		}
		out.Queues = append(out.Queues, QueueStats{
			Switch: at.Switch.String(), Port: at.Port, Queue: e.queue, Time: x.at.UTC(),
			Bytes: x.total.Bytes, Packets: x.total.Packets, Drops: x.total.Drops,
			BitRate: x.rate.Bits, PacketRate: x.rate.Packets, DropRate: x.rate.Drops,
			Matched: x.total.Matched, WithoutEffect: x.total.Plain, Fault: x.fault,
		})
	}
	return out, true
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
