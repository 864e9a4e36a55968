package plugin

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// placement is where devices are served: the way of their packets to one place, or to two
// for a while. What the switches have of it is the ledger's.
type placement struct {
	*core
	// served is called when a device is served where it is, by other rules than before.
	served func(ctx context.Context, id string)

	// The lock of core guards these.
	mobiles map[string]*mobile
	motions map[string]*motion // what devices have reported of their movement
	history *history
}

// mobile is what the service does for one device. It is changed in the device's
// turn of the work queue only, and under the service's lock.
type mobile struct {
	// plan is what is declared, and rules are the rules of it with those of laid.
	plan  route.Plan
	rules []network.Rule
	state state
	// writing are the rules that are being written.
	writing []network.Rule
	// second is a place that is served beside that where the device is.
	second *second
	// via names the neighbour by whose peering the device's packets come and go;
	// empty: our own uplinks.
	via      string
	exchange exchange
	// answers is what switches answer about it by themselves.
	answers answers
	// granted is when the latest request came in that was granted.
	granted time.Time
	// followed is when a packet last had the device follow it to another port.
	followed time.Time
	// err is why its rules are not as they should be.
	err string
}

// second is a place that is served beside that where the device is: one that is
// prepared, or the old one for a while after a move.
type second struct {
	place route.Place
	peer  string
	cause string
	until time.Time
	timer *time.Timer // nil if somebody else ends it
}

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

// exchangeTime is how long the messages of one exchange may be apart.
const exchangeTime = 10 * time.Second

// mobileOf finds or makes what is kept for a device.
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

// forgetMobile forgets a device for which nothing is declared.
func (s *placement) forgetMobile(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mobiles[id]; m != nil && m.state == nowhere {
		delete(s.mobiles, id)
		delete(s.motions, id)
	}
}

// want is how a device is to be served at places.
func (s *placement) want(d registry.Device, ip netip.Addr, via string, places ...route.Place) route.Want {
	w := route.Want{IP: ip, Home: d.HomeMAC(), Places: places}
	for _, r := range s.settings.Borders {
		if r.Peer == via {
			w.Borders = append(w.Borders, route.Border{At: r.At, Peer: r.Peer})
		}
	}
	return w
}

// placeOf is an attachment as the planner sees it.
func placeOf(a *registry.Attachment) route.Place { return route.Place{At: a.At, MAC: a.MAC} }

// spotOf is an attachment as a record shows it.
func spotOf(a *registry.Attachment) *Spot {
	if a == nil {
		return nil
	}
	return &Spot{Port: Port{a.At}, MAC: a.MAC, Peer: a.Peer}
}

// alive says whether all switches of a plan are connected and all links of its
// ways are there.
func alive(top *network.Topology, p *route.Plan) bool {
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

// placeKey is what makes a flow entry unique in the network.
type placeKey struct {
	sw openflow.DatapathID
	k  rule.Key
}

// compare counts what leads from some rules to others.
func compare(old, now []network.Rule) Changes {
	var c Changes
	before := make(map[placeKey]*network.Rule, len(old))
	for i := range old {
		before[placeKey{old[i].Switch, old[i].Key()}] = &old[i]
	}
	touched := map[openflow.DatapathID]bool{}
	for i := range now {
		r := &now[i]
		k := placeKey{r.Switch, r.Key()}
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

// lay returns rules with those of a next plan that are on switches of their own: the
// branch without its join.
func lay(rules, others []network.Rule) []network.Rule {
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

// keep returns rules with those of before by which packets that are under way on a way
// that the device has left still get there, or to a border port. Of what is on switches of the
// new ways too, these are the rules that tell nothing by the port of packets to the
// device, and no copies by their mark: those could catch what goes by the new rules.
func keep(rules, before []network.Rule) []network.Rule {
	here, have := map[openflow.DatapathID]bool{}, map[placeKey]bool{}
	for i := range rules {
		here[rules[i].Switch] = true
		have[placeKey{rules[i].Switch, rules[i].Key()}] = true
	}
	out := slices.Clone(rules)
	for _, r := range before {
		plain := r.Offset == rule.DeviceUp || r.Offset == rule.DeviceDown
		if !here[r.Switch] || plain && !have[placeKey{r.Switch, r.Key()}] {
			out = append(out, r)
		}
	}
	return out
}

// ahead returns rules with those of a later plan for packets to the device that are
// where these leave such packets alone. Nothing goes by them yet: a switch that has to
// do something else with a packet than it remembers, has forgotten it until it matters.
func ahead(rules, later []network.Rule) []network.Rule {
	down := slices.DeleteFunc(slices.Clone(later), func(r network.Rule) bool { return r.Offset != rule.DeviceDown })
	return withLeftovers(rules, down)
}

// withLeftovers are rules with those of before that they do not replace.
func withLeftovers(rules, before []network.Rule) []network.Rule {
	have := map[placeKey]bool{}
	for i := range rules {
		have[placeKey{rules[i].Switch, rules[i].Key()}] = true
	}
	out := slices.Clone(rules)
	for _, r := range before {
		if !have[placeKey{r.Switch, r.Key()}] {
			out = append(out, r)
		}
	}
	return out
}
