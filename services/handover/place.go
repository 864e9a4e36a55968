package handover

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/predict"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// placement serves devices: it writes the rules that lead a device's packets to one place or, for a
// while, to two. The ledger keeps these rules in the switches.
type placement struct {
	*core
	// served is called when a device's rules have been replaced.
	served func(ctx context.Context, id string)

	// The lock of core guards the fields below.
	mobiles map[string]*mobile
	motions map[string]*motion // latest reports of devices about their movement
	history *history
}

// mobile is the state of serving one device. Only jobs of the device in the work queue change it, and
// they hold the service's lock.
type mobile struct {
	// plan is the plan whose rules are declared in the ledger. rules are all declared rules of the
	// device: those of plan, and those of a prepared place.
	plan  route.Plan
	rules []network.Rule
	state state
	// writing are the rules that are being written to the switches; nil if none are.
	writing []network.Rule
	// second is the place that is served in addition to the device's current one; nil if there is
	// none.
	second *second
	// via names the neighbour through whose peering the device's packets come and go; empty: our
	// own uplinks.
	via      string
	exchange exchange
	// answers holds the ARP answers that switches give about the device by themselves.
	answers answers
	// granted is when the latest granted request arrived.
	granted time.Time
	// followed is when the device was last moved because of a packet from another port.
	followed time.Time
	// err is the reason why the device's rules are not as they should be; empty if they are.
	err string
}

// second is a place that is served in addition to the device's current one: a prepared place, or
// the previous one for a while after a move.
type second struct {
	place route.Place
	peer  string
	cause string
	until time.Time
	timer *time.Timer // calls endSecond at until; nil if no timer is set
}

// stop stops the timer, if there is one.
func (x *second) stop() {
	if x.timer != nil {
		x.timer.Stop()
	}
}

// motion is the latest report about a device's movement, with the prediction made from it.
type motion struct {
	report predict.Motion
	choice predict.Choice
	err    string
	timer  *time.Timer
}

// exchange is a DHCP exchange of a device at one port: when its first message arrived, and how long
// the association before that took.
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

// wantAt returns the planner's input for a plan that serves a device at places.
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

// intact reports whether all switches of a plan are connected, all links of its paths exist, and the
// plan reaches all border ports.
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

// withBranch returns rules, and those of others that are on switches where rules has none. So others'
// path gets its rules beyond the join, the switch where it leaves the path of rules. The join's own
// rules stay as they are.
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

// withOldPath returns rules, and those of before by which packets in flight on an abandoned path still
// reach the old place or a border port. On switches where rules has entries, it keeps an old rule only
// if rules does not replace it, and if the old rule neither matches packets to the device by their
// input port nor marks copies. The other old rules could match packets that are meant for the new ones.
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

// withFinal returns rules, and the rules to the device from a later plan that rules does not replace.
// No packets match the later rules yet. They are written early because a new rule makes the switch
// delete its cached decisions, and this must be over when packets depend on the rule.
func withFinal(rules, later []network.Rule) []network.Rule {
	down := slices.DeleteFunc(slices.Clone(later), func(r network.Rule) bool { return r.Offset != rule.DeviceDown })
	return withRemaining(rules, down)
}

// withRemaining returns rules, and those of before that rules does not replace.
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

// state is how a device is served.
type state uint8

const (
	// detached: the device has no rules.
	detached state = iota
	// expected: a visitor has rules to the place where it will be.
	expected
	// served: the device is served at its current or last known place only.
	served
	// prepared: the path to a second place has its rules, but no packets go there yet.
	prepared
	// bicasting: packets also go to a second place, where the device is expected.
	bicasting
	// leaving: packets also go to the place that the device has left, for a while.
	leaving
)

var stateNames = [...]string{"detached", "expected", "served", "prepared", "bicasting", "leaving"}

func (s state) String() string { return stateNames[s] }

// step is an event that changes a device's state.
type step uint8

const (
	// stepServe: rules to a place are in the switches.
	stepServe step = iota
	// stepExpect: rules lead to the place where a visitor will arrive.
	stepExpect
	// stepArrive: the expected visitor has arrived, or is no longer expected.
	stepArrive
	// stepPrepare: the path to a second place has its rules.
	stepPrepare
	// stepBicast: packets go to a second place.
	stepBicast
	// stepMove: the device has gone to the second place, and the first is still served.
	stepMove
	// stepSettle: only one place is served again.
	stepSettle
	// stepRemove: the rules have been removed.
	stepRemove
)

var stepNames = [...]string{"serve", "expect", "arrive", "prepare", "bicast", "move", "settle", "remove"}

func (s step) String() string { return stepNames[s] }

// transitions holds the next state for each state and step. A step that is not listed for a state
// changes nothing.
var transitions = map[state]map[step]state{
	detached:  {stepServe: served, stepArrive: detached, stepSettle: detached, stepRemove: detached},
	expected:  {stepServe: expected, stepExpect: expected, stepArrive: served, stepSettle: served, stepRemove: detached},
	served:    {stepServe: served, stepExpect: expected, stepArrive: served, stepPrepare: prepared, stepBicast: bicasting, stepMove: leaving, stepSettle: served, stepRemove: detached},
	prepared:  {stepServe: prepared, stepArrive: prepared, stepPrepare: prepared, stepBicast: bicasting, stepMove: leaving, stepSettle: served, stepRemove: detached},
	bicasting: {stepServe: bicasting, stepArrive: bicasting, stepPrepare: prepared, stepBicast: bicasting, stepMove: leaving, stepSettle: served, stepRemove: detached},
	leaving:   {stepServe: leaving, stepArrive: leaving, stepPrepare: prepared, stepBicast: bicasting, stepMove: leaving, stepSettle: served, stepRemove: detached},
}

// advance changes the state by a step. The caller holds the lock. A step that is not listed for
// the state changes nothing.
func (m *mobile) advance(s step) {
	if next, ok := transitions[m.state][s]; ok {
		m.state = next
	}
	if m.state < prepared && m.second != nil {
		m.second.stop()
		m.second = nil
	}
}

// advanceWith changes the state by a step, and makes x the second place. The caller holds the lock.
func (m *mobile) advanceWith(s step, x *second) {
	if m.second != nil {
		m.second.stop()
	}
	m.second = x
	m.advance(s)
}

// hasPrepared reports whether the second place is one where the device is expected.
func (m *mobile) hasPrepared() bool { return m.state == prepared || m.state == bicasting }

// PlaceOf returns the port and MAC address of an attached device, and reports whether the device uses
// the given address there. It finds the device by the MAC address or, if that is zero, by the IP
// address. The network calls PlaceOf so that ARP packets cannot move a device: only the device's class
// decides what may move it.
func (s *core) PlaceOf(mac openflow.MAC, ip netip.Addr) (network.Pin, bool) {
	d, known := s.registry.DeviceByIP(ip)
	if !mac.IsZero() {
		d, known = s.registry.DeviceByMAC(mac)
	}
	l, leased := s.registry.Lease(d.ID)
	if !known || !leased || !l.Active(s.now()) || l.Attachment == nil {
		return network.Pin{}, false
	}
	kept := mac == l.Attachment.MAC
	if mac.IsZero() {
		kept = ip == l.IP
	}
	return network.Pin{MAC: l.Attachment.MAC, At: l.Attachment.At}, kept
}

// settling is how long a switch may still apply rules that it says it has replaced: Open vSwitch
// confirms before it has revalidated its cached flows.
const settling = 50 * time.Millisecond

// maxInFlight bounds how long a change waits for packets in flight, whatever latency has been
// measured. The device's next move has to wait for the change.
const maxInFlight = 500 * time.Millisecond

// inFlightTime returns how long packets may still be in flight along a path that is no longer
// used.
func (s *placement) inFlightTime(path []network.Hop) time.Duration {
	_, links := route.BranchLatencies(s.net.Topology(), path, s.net.ControlLatency)
	out := settling
	for _, l := range links {
		out += l
	}
	return min(out, maxInFlight)
}
