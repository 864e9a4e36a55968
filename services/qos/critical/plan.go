package critical

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

const (
	// maxSearches bounds how often the search for a path is repeated because another flow
	// was promised a link of the path in between.
	maxSearches = 16
	// maxWider bounds the searches for a wider path of the same length.
	maxWider = 4
)

// planner finds paths for flows, enters promises into the book, and checks whether paths
// are still good.
type planner struct{ Options }

// search returns the shortest path that meets a request. Of several such paths, it returns one that
// leaves most at its narrowest link, as far as maxWider further searches find it.
func search(t *network.Topology, f *flow, r topology.Request) ([]network.Hop, error) {
	best, err := t.Find(f.From, f.To, r)
	if err != nil {
		return nil, err
	}
	for range maxWider {
		if len(best.Path.Hops) == 1 {
			break
		}
		r.MinBandwidth = best.Width + 1
		wider, err := t.Find(f.From, f.To, r)
		if err != nil || len(wider.Path.Hops) > len(best.Path.Hops) {
			break
		}
		best = wider
	}
	return best.Path.Hops, nil
}

// accept finds the shortest path whose every link has a flow's rate available, and enters the
// promise into the book of promises. If another flow was promised a link between search and entry,
// the entry fails as a whole, and the search is repeated. For a flow of a mobile host, the only
// candidate is the host's present path.
//
// If holds is set, the bandwidth that is promised to this flow on links already counts as
// available.
func (p *planner) accept(f *flow, holds bool) ([]network.Hop, error) {
	if f.isMobile() {
		hops, ok := p.mobilePath(f)
		if !ok {
			return nil, network.ErrNoPath
		}
		return hops, p.Book.Admit(p.promise(f, hops, holds))
	}
	t := p.Network.Topology()
	available := func(at network.PortRef) uint64 { return p.Book.AvailableAgain(at, f.promiseKey(), holds) }
	request := topology.Request{
		MinBandwidth: f.Rate,
		Available:    func(l network.Link) uint64 { return available(l.From) },
		Exclude: func(l network.Link) string {
			if free := available(l.To); free < f.Reverse {
				return fmt.Sprintf("its reverse direction has %d bit/s available, %d are required", free, f.Reverse)
			}
			return ""
		},
	}
	var err error
	for range maxSearches {
		hops, none := search(t, f, request)
		if none != nil {
			return nil, p.explainShortage(f, none)
		}
		if err = p.Book.Admit(p.promise(f, hops, holds)); err == nil {
			return hops, nil
		}
		var short *reserve.Shortage
		if errors.As(err, &short) && p.Network.IsEdge(short.Link) {
			break
		}
	}
	return nil, err
}

// keepPath enters the promise of a flow on its present path into the book, and reports whether that
// succeeded. A waiting flow that succeeds need not be moved.
func (p *planner) keepPath(f *flow, hops []network.Hop) bool {
	if f.isMobile() {
		return false
	}
	missing, _ := kit.MissingLink(p.Network, hops)
	return missing == "" && p.Book.Admit(p.promise(f, hops, false)) == nil
}

// defaultPath returns the path that default forwarding takes for a flow, and reports whether there
// is one.
func (p *planner) defaultPath(f *flow) ([]network.Hop, bool) {
	if f.isMobile() {
		return p.mobilePath(f)
	}
	path, ok := p.Network.Topology().Path(f.From, f.To, network.MetricHops)
	return path.Hops, ok
}

// explainShortage returns the reason why there is no path for a flow: the shortage on the first
// link of the shortest path that has too little, or else why itself.
func (p *planner) explainShortage(f *flow, why error) error {
	hops, _ := p.defaultPath(f)
	if short := p.Book.Short(p.promise(f, hops, false)); short != nil {
		return fmt.Errorf("%w, and no other path has enough", short)
	}
	return why
}

// choose accepts a flow, or falls back to the path of default forwarding. In the latter case, it
// enters the flow's traffic into the book as yielding, that is, as traffic whose bandwidth is
// available for promises.
func (p *planner) choose(f *flow) (placement, error) {
	hops, why := p.accept(f, true)
	if why == nil {
		return placement{State: StateAccepted, Hops: hops}, nil
	}
	hops, ok := p.defaultPath(f)
	if !ok {
		return placement{}, network.ErrNoPath
	}
	at := placement{StateBestEffort, why.Error(), hops, undecided(why)}
	p.restore(f, at)
	return at, nil
}

// restore enters a placement into the book. A flow whose connection was closed passes its own meter
// as long as its rules exist. Other yielding flows pass the meters of links.
func (p *planner) restore(f *flow, at placement) {
	if at.State == StateAccepted {
		p.Book.Restore(p.promise(f, at.Hops, false))
		return
	}
	now := f.status()
	yields := reserve.Promise{Key: f.promiseKey(), Yields: true, Waits: now.eager, Shares: f.shares(at.Hops)}
	for i := range yields.Shares {
		yields.Shares[i].Rate = 0
		if !now.closed {
			yields.Shares[i].Counter = reserve.Counter{}
		}
	}
	p.Book.Restore(yields)
}

// promise returns the promise to a flow along a path. It contains no links to hosts whose speed is
// not known, because no path avoids them.
func (p *planner) promise(f *flow, hops []network.Hop, holds bool) reserve.Promise {
	return reserve.Promise{Key: f.promiseKey(), Holds: holds, Shares: slices.DeleteFunc(f.shares(hops), func(x reserve.Share) bool {
		return p.Network.IsEdge(x.Link) && p.Book.Use(x.Link).Capacity == 0
	})}
}

// shares returns the bandwidth that a flow needs along a path: its rate on every link that it
// takes, including the link to its destination, and the reverse rate on every link that its answers
// take, except the link to its source. On the latter link, answers are expected, but nothing is
// promised to them; otherwise no sending host could be promised all of its link. The links are in
// the order in which packets pass them.
func (f *flow) shares(hops []network.Hop) []reserve.Share {
	if len(hops) == 0 {
		return nil
	}
	var out []reserve.Share
	counters := f.counters(hops)
	for _, hop := range hops {
		out = append(out, reserve.Share{Link: network.PortRef{Switch: hop.Switch, Port: hop.Out}, Rate: f.Rate, Counter: counters[forward]})
	}
	if f.Reverse == 0 {
		return out
	}
	for i, hop := range slices.Backward(hops) {
		answers := reserve.Share{Link: network.PortRef{Switch: hop.Switch, Port: hop.In}, Answers: f.Reverse, Counter: counters[reverse]}
		if i > 0 {
			answers.Rate = f.Reverse
		}
		out = append(out, answers)
	}
	return out
}

// counters returns the meters that count the flow and its answers while the flow is accepted.
// Answers without a meter of their own are counted only up to the traffic of the flow itself.
func (f *flow) counters(hops []network.Hop) (by [directions]reserve.Counter) {
	first, last := hops[0], hops[len(hops)-1]
	if f.isMobile() {
		first, last = f.borderHop(hops), f.borderHop(hops)
	}
	by[forward] = reserve.Counter{Switch: first.Switch, Meter: f.meterID(forward)}
	by[reverse] = by[forward]
	if f.HoldBack && f.Reverse > 0 {
		by[reverse] = reserve.Counter{Switch: last.Switch, Meter: f.meterID(reverse)}
	}
	return by
}

// locate finds the destination host of a flow if no packet from that host has been seen yet, for
// example after a restart under traffic. Otherwise every packet of the flow would be flooded.
func (p *planner) locate(ctx context.Context, f *flow) error {
	if !f.To.IsZero() {
		return nil
	}
	host, err := p.Network.ResolveHost(ctx, f.Header.Dst)
	switch {
	case err != nil:
		return err
	case host.MAC != f.Header.EthDst:
		return fmt.Errorf("%v has the address %v, not %v: %w", f.Header.Dst, host.MAC, f.Header.EthDst, network.ErrUnknownHost)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.To = host.At
	return nil
}
