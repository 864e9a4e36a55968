package critical

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// puntInstaller installs the rules that send the first packets of critical traffic to the
// controller, and remembers which switches refuse them.
type puntInstaller struct {
	Options
	definitions *kit.Collection[*Definition]

	installing sync.Mutex // held while the rules are written

	mu      sync.Mutex
	refused map[openflow.DatapathID]error // by switch, the error with which it refuses punt rules
	moving  network.Moving                // the mobile hosts whose first packets are punted at borders
}

// install writes the punt rules to every switch.
func (a *puntInstaller) install(ctx context.Context) {
	a.installing.Lock()
	defer a.installing.Unlock()
	definitions, moving := a.definitions.Values(), a.Network.Moving()
	refused := a.Rules.EverySwitch(ctx, "punt", func(d openflow.DatapathID) network.Program {
		p := Punts(d, definitions)
		p.Rules = append(p.Rules, borderPunts(d, definitions, moving)...)
		return p
	})
	a.mu.Lock()
	before := a.refused
	a.refused, a.moving = refused, moving
	a.mu.Unlock()
	for d, err := range refused {
		if was := before[d]; was == nil || was.Error() != err.Error() {
			a.Log.Warn("critical flows that enter here are not recognised", "switch", d, "error", err)
			a.Publish("critical.refused", Refusal{d, err.Error()})
		}
	}
}

// followMobile rewrites the punt rules if the set of mobile hosts has changed.
func (a *puntInstaller) followMobile(ctx context.Context) {
	now := a.Network.Moving()
	a.mu.Lock()
	same := slices.Equal(now.Prefixes, a.moving.Prefixes) && slices.Equal(now.Borders, a.moving.Borders)
	a.mu.Unlock()
	if !same {
		a.install(ctx)
	}
}

// Refusal describes a switch that refuses the rules for first packets.
type Refusal struct {
	Switch openflow.DatapathID `json:"switch" doc:"Where critical flows enter unrecognised, and go like any traffic"`
	Reason string              `json:"reason"`
}

// Refusals returns the switches that refuse the rules for first packets. The rules are
// tried again at each reading of the counters.
func (a *puntInstaller) Refusals() []Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []Refusal{}
	for d, err := range a.refused {
		out = append(out, Refusal{d, err.Error()})
	}
	slices.SortFunc(out, func(a, b Refusal) int { return cmp.Compare(a.Switch, b.Switch) })
	return out
}

// wholePacket is the length in an output action that makes a switch send the whole packet to the
// controller.
const wholePacket = 0xffff

// Punts returns the rules that send the first packets of critical traffic from one switch
// to the controller.
func Punts(d openflow.DatapathID, definitions []*Definition) (p network.Program) {
	seen := map[openflow.Match]bool{}
	for _, def := range definitions {
		for _, m := range def.Matches {
			p.Rules = punt(p.Rules, d, network.StageWay, rule.WayCriticalAsk, m, seen)
		}
	}
	return p
}

// punt appends a rule that sends packets to the controller, unless seen contains its match already.
func punt(to []network.Rule, d openflow.DatapathID, stage network.Stage, offset uint16, m openflow.Match, seen map[openflow.Match]bool) []network.Rule {
	if seen[m] {
		return to
	}
	seen[m] = true
	return append(to, network.Rule{
		Switch: d, Stage: stage, Offset: offset, Match: m, Leased: true, Actions: []openflow.Action{openflow.OutputController(wholePacket)},
	})
}

// borderPunts returns the rules at one switch that send the first packets of mobile hosts' critical
// traffic to the controller. It returns none if the switch is not a border. The rules apply before
// those that forward these hosts' packets.
func borderPunts(d openflow.DatapathID, definitions []*Definition, m network.Moving) (rules []network.Rule) {
	if !slices.ContainsFunc(m.Borders, func(at network.PortRef) bool { return at.Switch == d }) {
		return nil
	}
	seen := map[openflow.Match]bool{}
	for _, def := range definitions {
		for _, match := range def.Matches {
			for _, p := range m.Prefixes {
				for _, of := range []openflow.OXM{openflow.IPSrcPrefix(p), openflow.IPDstPrefix(p)} {
					if narrow, ok := narrow(match, of); ok {
						rules = punt(rules, d, network.StageSelect, rule.SelectCriticalAsk, narrow, seen)
					}
				}
			}
		}
	}
	return rules
}

// narrow restricts a match to packets with an IPv4 address in the prefix. It returns false if the
// match has no such packets.
func narrow(m openflow.Match, prefix openflow.OXM) (openflow.Match, bool) {
	only := openflow.MustMatch(openflow.EthType(packet.TypeIPv4), prefix)
	if !m.Overlaps(only) {
		return m, false
	}
	if only.Covers(m) {
		return m, true
	}
	var fields []openflow.OXM
	for o := range m.Fields() {
		if o.Field != openflow.FieldEthType && o.Field != prefix.Field && o.Field != openflow.FieldInPort {
			fields = append(fields, o)
		}
	}
	n, err := openflow.NewMatch(append(fields, openflow.EthType(packet.TypeIPv4), prefix)...)
	return n, err == nil
}
