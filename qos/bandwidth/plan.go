package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/qos/reserve"
	"github.com/sluice-net/sluice/service"
)

const (
	// maxSearches bounds how often a path is searched anew because somebody else was
	// promised a link of it in between.
	maxSearches = 16
	// maxWider bounds how often a wider path is looked for that is as short.
	maxWider = 4
)

// planner finds flows their places, enters what is promised there into the book, and says
// whether places are still good.
type planner struct{ Options }

// search is the shortest path that meets a request: of several, one that leaves most at
// its narrowest link, as far as a few searches tell.
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

// accept finds a flow the shortest path whose every link has its rate available, and
// enters the promise into the book. Between the search and the entry somebody else may
// have been promised a link: then the entry fails as a whole, and the search is repeated.
// For a flow whose host moves there is that host's way, and no other.
//
// With holds it can be promised again what it is promised on links already.
func (p *planner) accept(f *flow, holds bool) ([]network.Hop, error) {
	if f.roams() {
		hops, led := p.way(f)
		if !led {
			return nil, network.ErrNoPath
		}
		return hops, p.Book.Admit(p.promise(f, hops, holds))
	}
	t := p.Network.Topology()
	available := func(at network.PortRef) uint64 { return p.Book.AvailableAgain(at, f.promise(), holds) }
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
			return nil, p.narrowest(f, none)
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

// stays enters the promise of a flow on the path that it has, and reports whether it can be made
// there. So a flow that waits is not moved without need.
func (p *planner) stays(f *flow, hops []network.Hop) bool {
	if f.roams() {
		return false
	}
	missing, _ := service.MissingLink(p.Network, hops)
	return missing == "" && p.Book.Admit(p.promise(f, hops, false)) == nil
}

// byDefault is where default forwarding leads a flow.
func (p *planner) byDefault(f *flow) ([]network.Hop, bool) {
	if f.roams() {
		return p.way(f)
	}
	path, ok := p.Network.Topology().Path(f.From, f.To, network.MetricHops)
	return path.Hops, ok
}

// narrowest says why there is no path for a flow: of the shortest one, the first link
// that has too little.
func (p *planner) narrowest(f *flow, why error) error {
	hops, _ := p.byDefault(f)
	if short := p.Book.Short(p.promise(f, hops, false)); short != nil {
		return fmt.Errorf("%w, and no other path has enough", short)
	}
	return why
}

// choose accepts a flow, or falls back to where default forwarding leads it: then its
// traffic is entered into the book as one that yields.
func (p *planner) choose(f *flow) (placement, error) {
	hops, why := p.accept(f, true)
	if why == nil {
		return placement{State: StateAccepted, Hops: hops}, nil
	}
	hops, ok := p.byDefault(f)
	if !ok {
		return placement{}, network.ErrNoPath
	}
	at := placement{StateBestEffort, why.Error(), hops, undecided(why)}
	p.restore(f, at)
	return at, nil
}

// undecided reports whether a flow was refused only because it is not known yet what a link
// carries.
func undecided(why error) bool {
	var short *reserve.Shortage
	return errors.As(why, &short) && short.Unknown
}

// restore enters into the book what a placement holds. The traffic of a flow whose connection
// has been closed passes the flow's own meter as long as its rules are there, that of others
// which yield those of links.
func (p *planner) restore(f *flow, at placement) {
	if at.State == StateAccepted {
		p.Book.Restore(p.promise(f, at.Hops, false))
		return
	}
	now := f.now()
	yields := reserve.Promise{Key: f.promise(), Yields: true, Waits: now.eager, Shares: f.shares(at.Hops)}
	for i := range yields.Shares {
		yields.Shares[i].Rate = 0
		if !now.closed {
			yields.Shares[i].Counter = reserve.Counter{}
		}
	}
	p.Book.Restore(yields)
}

// promise is what a flow is to be promised along a path: nothing on links to hosts whose
// speed nobody knows, which no path avoids.
func (p *planner) promise(f *flow, hops []network.Hop, holds bool) reserve.Promise {
	return reserve.Promise{Key: f.promise(), Holds: holds, Shares: slices.DeleteFunc(f.shares(hops), func(x reserve.Share) bool {
		return p.Network.IsEdge(x.Link) && p.Book.Use(x.Link).Capacity == 0
	})}
}

// shares returns what a flow needs along a path: its rate on every link it goes by, the one to
// its destination included, and the reverse rate on every link that answers go by but the one
// to its source. There they are expected, and nothing is promised to them: or no host that
// sends could be promised all of its link. Links are in the order in which packets pass them.
func (f *flow) shares(hops []network.Hop) []reserve.Share {
	if len(hops) == 0 {
		return nil
	}
	var out []reserve.Share
	counters := f.counters(hops)
	for _, hop := range hops {
		out = append(out, reserve.Share{Link: network.PortRef{Switch: hop.Switch, Port: hop.Out}, Rate: f.Rate, Counter: counters[there]})
	}
	if f.Reverse == 0 {
		return out
	}
	for i, hop := range slices.Backward(hops) {
		answers := reserve.Share{Link: network.PortRef{Switch: hop.Switch, Port: hop.In}, Answers: f.Reverse, Counter: counters[back]}
		if i > 0 {
			answers.Rate = f.Reverse
		}
		out = append(out, answers)
	}
	return out
}

// counters returns the meters that the flow passes, and its answers, while it is accepted. Of
// answers without a meter no more is taken for theirs than the flow has sent.
func (f *flow) counters(hops []network.Hop) (by [directions]reserve.Counter) {
	first, last := hops[0], hops[len(hops)-1]
	if f.roams() {
		first, last = f.border(hops), f.border(hops)
	}
	by[there] = reserve.Counter{Switch: first.Switch, Meter: f.policeID(there)}
	by[back] = by[there]
	if f.HoldBack && f.Reverse > 0 {
		by[back] = reserve.Counter{Switch: last.Switch, Meter: f.policeID(back)}
	}
	return by
}

// locate finds the destination of a flow that has not been heard yet, as after a
// restart under traffic: its packets would be flooded, every one of them.
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
