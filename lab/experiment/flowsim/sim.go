package flowsim

import (
	"container/heap"
	"math"
)

// Flow is a transfer, with the time when it begins and the time that it takes alone at a rate of 1,
// both in seconds. Flows of a simulation are in the order of their beginnings.
type Flow struct{ Start, Work float64 }

// Router chooses the links of subflows. Links are numbered; times are in seconds.
type Router interface {
	// Route returns the path of a flow's subflow. Subflows are numbered from 0. If Route returns no
	// links for a further subflow, that subflow does not begin. The simulation keeps a single
	// reference to the returned links, and does not change them.
	Route(flow, subflow int, now float64) []int
	// Ended is called when a flow has ended.
	Ended(flow int, now float64)
	// Read is called at every interval. It can ask the simulation what links and subflows have
	// carried, and can move subflows.
	Read(s *Sim, now float64)
}

// Options describes a simulation.
type Options struct {
	// Capacity holds the rate of each link.
	Capacity []float64
	Flows    []Flow
	Router   Router
	// Subflows bounds the subflows of a flow. A flow gets a further one each time that it has
	// carried another threshold of work, in the unit of Flow.Work.
	Subflows  int
	Threshold float64
	// Coupled makes the subflows of a flow share the weight of one.
	Coupled bool
	// Interval is the interval of readings; 0 means none.
	Interval float64
}

// transfer is a flow that has begun and not ended.
type transfer struct {
	flow     int
	asked    int // subflows that were requested
	subflows []*subflow
	rate     float64
	carried  float64 // by the time since
	since    float64
	stale    bool    // rate and when are out of date
	target   float64 // what it carries until it ends or gets a further subflow
	when     float64 // when it reaches the target
	place    int     // index in the queue
}

// Sim is a simulation.
type Sim struct {
	Options
	rates rates
	live  []*transfer // by flow; nil before it begins and after its end
	queue queue
	stale []*transfer
	ends  []float64
}

// Run simulates all flows, and returns the time at which each has ended.
func Run(o Options) []float64 {
	s := &Sim{Options: o, live: make([]*transfer, len(o.Flows)), ends: make([]float64, len(o.Flows))}
	s.rates.links = make([]link, len(o.Capacity))
	for i, c := range o.Capacity {
		s.rates.links[i].capacity = c
	}
	s.rates.changed = s.changed
	next, reading := 0, math.Inf(1)
	if o.Interval > 0 {
		reading = o.Interval
	}
	for next < len(o.Flows) || len(s.queue) > 0 {
		start, target := math.Inf(1), math.Inf(1)
		if next < len(o.Flows) {
			start = o.Flows[next].Start
		}
		if len(s.queue) > 0 {
			target = s.queue[0].when
		}
		s.rates.now = min(start, target, reading)
		switch s.rates.now {
		case target:
			s.computeTarget(s.queue[0])
		case start:
			s.begin(next)
			next++
		default:
			o.Router.Read(s, s.rates.now)
			reading += o.Interval
		}
		s.settle()
	}
	return s.ends
}

// begin starts a flow.
func (s *Sim) begin(flow int) {
	t := &transfer{flow: flow, since: s.rates.now, when: math.Inf(1)}
	s.live[flow] = t
	heap.Push(&s.queue, t)
	s.addSubflow(t)
}

// addSubflow adds a subflow to a transfer, and computes the transfer's next target.
func (s *Sim) addSubflow(t *transfer) {
	number, work := t.asked, s.Flows[t.flow].Work
	t.asked++
	if links := s.Router.Route(t.flow, number, s.rates.now); len(links) > 0 {
		sub := &subflow{of: t, number: number, links: links, weight: 1}
		t.subflows = append(t.subflows, sub)
		s.rates.enter(sub)
	}
	if s.Coupled {
		for _, sub := range t.subflows {
			s.rates.setWeight(sub, 1/float64(len(t.subflows)))
		}
	}
	t.target = work
	if t.asked < s.Subflows {
		t.target = min(work, s.Threshold*float64(t.asked))
	}
	s.accumulate(t)
}

// computeTarget computes the target of a transfer: its end, or the threshold of its next subflow.
func (s *Sim) computeTarget(t *transfer) {
	s.accumulate(t)
	t.carried = t.target
	if t.target < s.Flows[t.flow].Work {
		s.addSubflow(t)
		return
	}
	for _, sub := range t.subflows {
		s.rates.leave(sub)
	}
	heap.Remove(&s.queue, t.place)
	s.live[t.flow], s.ends[t.flow] = nil, s.rates.now
	s.Router.Ended(t.flow, s.rates.now)
}

// changed records that a subflow's rate is about to change.
func (s *Sim) changed(sub *subflow) { s.accumulate(sub.of) }

// accumulate adds up what a transfer has carried, and marks its rate as stale.
func (s *Sim) accumulate(t *transfer) {
	if t.stale {
		return
	}
	t.carried += t.rate * (s.rates.now - t.since)
	t.since, t.stale = s.rates.now, true
	s.stale = append(s.stale, t)
}

// settle finds all rates after a change, and the times that follow from them.
func (s *Sim) settle() {
	s.rates.settle()
	for _, t := range s.stale {
		t.stale = false
		if s.live[t.flow] != t {
			continue
		}
		t.rate = 0
		for _, sub := range t.subflows {
			t.rate += sub.rate
		}
		t.when = s.rates.now + max(t.target-t.carried, 0)/t.rate
		heap.Fix(&s.queue, t.place)
	}
	s.stale = s.stale[:0]
}

// LinkCarried returns what a link has carried so far.
func (s *Sim) LinkCarried(l int) float64 {
	at := &s.rates.links[l]
	return at.carried + at.load*(s.rates.now-at.since)
}

// Carried returns what a flow's subflow has carried so far, or false if there is no such subflow at
// present.
func (s *Sim) Carried(flow, subflow int) (float64, bool) {
	sub := s.find(flow, subflow)
	if sub == nil {
		return 0, false
	}
	return sub.carried + sub.rate*(s.rates.now-sub.since), true
}

// Move moves a flow's subflow to other links.
func (s *Sim) Move(flow, subflow int, links []int) {
	if sub := s.find(flow, subflow); sub != nil {
		s.rates.leave(sub)
		sub.links = links
		s.rates.enter(sub)
	}
}

// find returns a flow's subflow, or nil if there is no such subflow at present.
func (s *Sim) find(flow, subflow int) *subflow {
	if t := s.live[flow]; t != nil {
		for _, sub := range t.subflows {
			if sub.number == subflow {
				return sub
			}
		}
	}
	return nil
}

// queue is a heap of transfers, ordered by the times when they reach their targets.
type queue []*transfer

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].when < q[j].when }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *queue) Push(x any) {
	t := x.(*transfer)
	t.place = len(*q)
	*q = append(*q, t)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	*q = (*q)[:last]
	return t
}
