package handover

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// placement serves devices: it leads their packets to one place or, for a while, to two. The
// ledger holds what the switches have of it.
type placement struct {
	*core
	// served is called when a device's rules have been replaced.
	served func(ctx context.Context, id string)

	// The lock of core guards the fields below.
	mobiles map[string]*mobile
	motions map[string]*motion // latest reports of devices about their movement
	history *history
}

// mobile holds what the service does for one device. It is changed only by jobs of the device in
// the work queue, and under the service's lock.
type mobile struct {
	// plan is the declared plan. rules are its rules, with those of a prepared place.
	plan  route.Plan
	rules []network.Rule
	state state
	// writing are the rules that are being written.
	writing []network.Rule
	// second is a place that is served beside the one where the device is.
	second *second
	// via names the neighbour through whose peering the device's packets come and go; empty: our
	// own uplinks.
	via      string
	exchange exchange
	// answers is what switches answer about the device by themselves.
	answers answers
	// granted is when the latest granted request arrived.
	granted time.Time
	// followed is when the device was last moved because of a packet from another port.
	followed time.Time
	// err says why the device's rules are not as they should be.
	err string
}

// second is a place that is served beside the one where the device is: a prepared one, or the
// previous one for a while after a move.
type second struct {
	place route.Place
	peer  string
	cause string
	until time.Time
	timer *time.Timer // nil if no timer ends it
}

// stop stops the timer, if there is one.
func (x *second) stop() {
	if x.timer != nil {
		x.timer.Stop()
	}
}

// exchange is a DHCP exchange of a device at one port.
type exchange struct {
	at    network.PortRef
	first time.Time
	ta    time.Duration
}

// exchangeTime is how far apart the messages of one exchange may be.
const exchangeTime = 10 * time.Second

// mobileOf returns the mobile of a device, and creates it if there is none.
func (s *placement) mobileOf(id string) *mobile {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mobiles[id]
	if m == nil {
		m = &mobile{}
		s.mobiles[id] = m
	}
	return m
}

// forgetMobile removes the mobile of a device that has no rules.
func (s *placement) forgetMobile(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mobiles[id]; m != nil && m.state == detached {
		delete(s.mobiles, id)
		delete(s.motions, id)
	}
}

// wantAt returns what the planner is asked for to serve a device at places.
func (s *placement) wantAt(d registry.Device, ip netip.Addr, via string, places ...route.Place) route.Want {
	w := route.Want{IP: ip, Home: d.HomeMAC(), Places: places}
	for _, r := range s.settings.Borders {
		if r.Peer == via {
			w.Borders = append(w.Borders, route.Border{At: r.At, Peer: r.Peer})
		}
	}
	return w
}

// placeOf returns an attachment as a place of the planner.
func placeOf(a *registry.Attachment) route.Place { return route.Place{At: a.At, MAC: a.MAC} }

// spotOf returns an attachment as a record shows it, or nil.
func spotOf(a *registry.Attachment) *Spot {
	if a == nil {
		return nil
	}
	return &Spot{Port: Port{a.At}, MAC: a.MAC, Peer: a.Peer}
}

// intact reports whether all switches of a plan are connected and all links of its paths are
// there.
func intact(top *network.Topology, p *route.Plan) bool {
	for i := range p.Program.Rules {
		if !top.Has(p.Program.Rules[i].Switch) {
			return false
		}
	}
	for _, way := range [][]network.Hop{p.Path, p.Up, p.Branch} {
		for i := 1; i < len(way); i++ {
			l, ok := top.LinkFrom(network.PortRef{Switch: way[i-1].Switch, Port: way[i-1].Out})
			if !ok || l.To != (network.PortRef{Switch: way[i].Switch, Port: way[i].In}) {
				return false
			}
		}
	}
	return len(p.Unreached) == 0
}

// entryKey identifies a flow entry in the network.
type entryKey struct {
	sw openflow.DatapathID
	k  rule.Key
}

// diffRules counts the changes that turn the old rules into the new ones.
func diffRules(old, now []network.Rule) Changes {
	var c Changes
	before := make(map[entryKey]*network.Rule, len(old))
	for i := range old {
		before[entryKey{old[i].Switch, old[i].Key()}] = &old[i]
	}
	touched := map[openflow.DatapathID]bool{}
	for i := range now {
		r := &now[i]
		k := entryKey{r.Switch, r.Key()}
		o := before[k]
		delete(before, k)
		switch {
		case o == nil:
			c.Added++
		case slices.Equal(o.Actions, r.Actions):
			continue
		default:
			c.Modified++
		}
		touched[r.Switch] = true
	}
	for k := range before {
		c.Deleted++
		touched[k.sw] = true
	}
	c.Switches = len(touched)
	return c
}

// withBranch returns rules together with those of another plan that are on switches without rules
// yet: the branch without its join.
func withBranch(rules, others []network.Rule) []network.Rule {
	here := map[openflow.DatapathID]bool{}
	rules = slices.Clone(rules)
	for i := range rules {
		here[rules[i].Switch] = true
	}
	for _, r := range others {
		if !here[r.Switch] {
			rules = append(rules, r)
		}
	}
	return rules
}

// withOldPath returns rules together with those of before by which packets in flight on a path
// that the device has left still reach the old place or a border port. On switches of the new
// paths, only such rules are kept that do not match packets to the device by their port and do not
// mark copies: others could catch packets that belong to the new rules.
func withOldPath(rules, before []network.Rule) []network.Rule {
	here, have := map[openflow.DatapathID]bool{}, map[entryKey]bool{}
	for i := range rules {
		here[rules[i].Switch] = true
		have[entryKey{rules[i].Switch, rules[i].Key()}] = true
	}
	out := slices.Clone(rules)
	for _, r := range before {
		plain := r.Offset == rule.DeviceUp || r.Offset == rule.DeviceDown
		if !here[r.Switch] || plain && !have[entryKey{r.Switch, r.Key()}] {
			out = append(out, r)
		}
	}
	return out
}

// withFinal returns rules together with those of a later plan that match packets to the device
// which the rules do not match. No packets match them yet. They are written early because a switch
// forgets its cached decision when the decision changes, and that must have happened when it
// matters.
func withFinal(rules, later []network.Rule) []network.Rule {
	down := slices.DeleteFunc(slices.Clone(later), func(r network.Rule) bool { return r.Offset != rule.DeviceDown })
	return withRemaining(rules, down)
}

// withRemaining returns rules together with those of before that they do not replace.
func withRemaining(rules, before []network.Rule) []network.Rule {
	have := map[entryKey]bool{}
	for i := range rules {
		have[entryKey{rules[i].Switch, rules[i].Key()}] = true
	}
	out := slices.Clone(rules)
	for _, r := range before {
		if !have[entryKey{r.Switch, r.Key()}] {
			out = append(out, r)
		}
	}
	return out
}
