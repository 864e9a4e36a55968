package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/qos/reserve"
)

// maxSearches bounds how often a path is searched anew because somebody else was
// promised a link of it in between.
const maxSearches = 16

// placement is where a flow goes, and with what.
type placement struct {
	path   network.Path
	state  State
	reason string // of best effort
}

// maxWider bounds how often a wider path is looked for that is as short.
const maxWider = 4

// search is the shortest path that meets a request: of several, one that leaves most at
// its narrowest link, as far as a few searches tell.
func search(t *network.Topology, f *flow, r topology.Request) (network.Path, error) {
	best, err := t.Find(f.from, f.to, r)
	if err != nil {
		return network.Path{}, err
	}
	for range maxWider {
		if len(best.Path.Hops) == 1 {
			break
		}
		r.MinBandwidth = best.Width + 1
		wider, err := t.Find(f.from, f.to, r)
		if err != nil || len(wider.Path.Hops) > len(best.Path.Hops) {
			break
		}
		best = wider
	}
	return best.Path, nil
}

// accept finds a flow the shortest path whose every link has its rate available, and
// enters the promise into the book. Between the search and the entry somebody else may
// have been promised a link: then the entry fails as a whole, and the search is repeated.
func (s *Service) accept(f *flow) (network.Path, error) {
	if f.roams() {
		return s.follow(f)
	}
	t, key := s.net.Topology(), f.promise()
	request := topology.Request{
		MinBandwidth: f.rate,
		Available:    func(l network.Link) uint64 { return s.book.Available(l.From, key) },
		Exclude: func(l network.Link) string {
			if free := s.book.Available(l.To, key); free < f.reverse {
				return fmt.Sprintf("its reverse direction has %d bit/s available, %d are required", free, f.reverse)
			}
			return ""
		},
	}
	var err error
	for range maxSearches {
		path, ferr := search(t, f, request)
		if ferr != nil {
			return network.Path{}, s.narrowest(t, f, ferr)
		}
		if err = s.book.Admit(s.promiseOf(f, path)); err == nil {
			return path, nil
		}
		var short *reserve.Shortage
		if errors.As(err, &short) && s.net.IsEdge(short.Link) {
			break
		}
	}
	return network.Path{}, err
}

// promiseOf is what a flow is to be promised along a path.
func (s *Service) promiseOf(f *flow, path network.Path) reserve.Promise {
	return reserve.Promise{Key: f.promise(), Shares: s.known(shares(path, f.rate, f.reverse))}
}

// narrowest says why there is no path for a flow: of the shortest one, the first link
// that has too little.
func (s *Service) narrowest(t *network.Topology, f *flow, why error) error {
	path, ok := t.Path(f.from, f.to, network.MetricHops)
	if !ok {
		return why
	}
	for _, share := range s.known(shares(path, f.rate, f.reverse)) {
		if free := s.book.Available(share.Link, f.promise()); free < share.Rate {
			short := &reserve.Shortage{Link: share.Link, Asked: share.Rate, Available: free, Capacity: s.book.Use(share.Link).Capacity}
			return fmt.Errorf("%w, and no other path has enough", short)
		}
	}
	return why
}

// known leaves out the links to hosts whose speed nobody knows: no path avoids them.
func (s *Service) known(all []reserve.Share) []reserve.Share {
	out := all[:0]
	for _, share := range all {
		if s.net.IsEdge(share.Link) && s.book.Use(share.Link).Capacity == 0 {
			continue
		}
		out = append(out, share)
	}
	return out
}

// fallBack is where default forwarding would lead a flow. Its traffic is entered into
// the book as one that yields.
func (s *Service) fallBack(f *flow, why error) (placement, error) {
	var path network.Path
	var ok bool
	if f.roams() {
		path, ok = s.way(f)
	} else {
		path, ok = s.net.Topology().Path(f.from, f.to, network.MetricHops)
	}
	if !ok {
		return placement{}, network.ErrNoPath
	}
	s.book.Restore(yielding(f, path))
	return placement{path: path, state: StateBestEffort, reason: why.Error()}, nil
}

func yielding(f *flow, path network.Path) reserve.Promise {
	p := reserve.Promise{Key: f.promise(), Yields: true}
	for _, share := range shares(path, f.rate, f.reverse) {
		share.Rate = 0
		p.Shares = append(p.Shares, share)
	}
	return p
}

// choose accepts a flow or falls back.
func (s *Service) choose(f *flow) (placement, error) {
	path, err := s.accept(f)
	if err != nil {
		return s.fallBack(f, err)
	}
	return placement{path: path, state: StateAccepted}, nil
}

// install writes the rules of a placement.
func (s *Service) install(ctx context.Context, f *flow, p placement, allowDown bool) error {
	var meter func(network.PortRef) uint32
	if p.state == StateBestEffort {
		s.guard.ensure(ctx, links(p.path))
		meter = s.guard.meter
	} else {
		s.guard.adjust(ctx, links(p.path))
		policed := p.path
		if f.roams() {
			policed.Hops = []network.Hop{f.border(p.path)}
		}
		meter = s.police(ctx, f, policed)
	}
	var rules network.Program
	if f.roams() {
		rules = s.borderProgram(f, p.path, meter)
	} else {
		rules = program(f.header, p.path, f.idle, meter)
		rules.Rules = append(rules.Rules, copies(f.header, p.path, meter, s.seesTCPFlags)...)
	}
	err := s.rules.Apply(ctx, f.key(), rules, network.ApplyOptions{Waves: waves(p.path), AllowDown: allowDown})
	if err == nil && p.state == StateBestEffort {
		s.unpolice(ctx, f)
	}
	return err
}

// place finds a new flow its place. The caller has locked f.changing.
func (s *Service) place(f *flow) {
	defer f.changing.Unlock()
	ctx, cancel := context.WithTimeout(f.ctx, placeFor)
	defer cancel()
	var p placement
	err := s.locate(ctx, f)
	if err == nil {
		p, err = s.choose(f)
	}
	if err == nil {
		err = s.install(ctx, f, p, false)
	}
	if err != nil {
		s.giveUp(f, err)
		return
	}
	s.mu.Lock()
	if f.ctx.Err() != nil {
		s.mu.Unlock()
		s.giveUp(f, context.Cause(f.ctx))
		return
	}
	s.enter(f, p)
	f.counter.at = time.Now() // its rules count from now
	s.placing--
	waiting := f.waiting
	f.waiting = nil
	s.mu.Unlock()
	for _, held := range waiting {
		if err := held.Release(); err != nil {
			s.log.Warn("releasing a first packet", "flow", f.header, "error", err)
		}
	}
	s.metrics.placed(p.state, time.Since(f.since))
	s.publish("flow."+string(p.state), s.recordOf(f))
	s.save(f)
}

// locate finds the destination of a flow that has not been heard yet, as after a
// restart under traffic: its packets would be flooded, every one of them.
func (s *Service) locate(ctx context.Context, f *flow) error {
	if !f.to.IsZero() {
		return nil
	}
	host, err := s.net.ResolveHost(ctx, f.header.Dst)
	switch {
	case err != nil:
		return err
	case host.MAC != f.header.EthDst:
		return fmt.Errorf("%v has the address %v, not %v: %w", f.header.Dst, host.MAC, f.header.EthDst, network.ErrUnknownHost)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.to = host.At
	return nil
}

// enter notes a flow's placement. The lock is held.
func (s *Service) enter(f *flow, p placement) {
	if p.state == StateAccepted && f.state != StateAccepted {
		f.accepted = time.Now()
	}
	f.path, f.state, f.reason = p.path, p.state, p.reason
	f.whole, f.broken, f.oversubscribed, f.pressure = true, time.Time{}, 0, ""
	f.over, f.excess, f.told = 0, 0, false
}

// giveUp lets a flow that cannot be placed go by default forwarding.
func (s *Service) giveUp(f *flow, why error) {
	s.book.Release(f.promise())
	ctx, cancel := s.cleanUp()
	defer cancel()
	if err := s.rules.Remove(ctx, f.key()); err != nil {
		s.log.Warn("removing the rules of a flow", "flow", f.header, "error", err)
	}
	s.unpolice(ctx, f)
	s.mu.Lock()
	waiting := f.waiting
	f.waiting = nil
	s.forget(f)
	s.mu.Unlock()
	for _, held := range waiting {
		if err := held.Forward(); err != nil {
			s.log.Warn("forwarding a first packet", "flow", f.header, "error", err)
		}
	}
	s.metrics.outcomes.WithLabelValues("failed").Inc()
	s.log.Warn("a critical flow goes by default forwarding", "flow", f.header, "error", why)
	s.publish("flow.failed", map[string]any{"id": f.id, "definition": f.definition, "flow": f.header.String(), "reason": why.Error()})
}

// cleanUp is the time for putting things in order, which the end of a flow, or of the
// service, does not cut short.
func (s *Service) cleanUp() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.tasks.Context()), placeFor)
}
