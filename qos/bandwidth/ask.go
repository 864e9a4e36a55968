package bandwidth

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
)

// asker asks switches for the first packets of critical traffic, and remembers which of
// them do not do so.
type asker struct {
	Options
	definitions *service.Collection[*Definition]

	asking sync.Mutex // held while the rules are written

	mu      sync.Mutex
	refused map[openflow.DatapathID]error // why a switch has no rules for first packets
	moving  network.Moving                // the hosts whose first packets come up at borders
}

// ask brings the rules for first packets into every switch.
func (a *asker) ask(ctx context.Context) {
	a.asking.Lock()
	defer a.asking.Unlock()
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

// follow has the rules for first packets follow the hosts that may move.
func (a *asker) follow(ctx context.Context) {
	now := a.Network.Moving()
	a.mu.Lock()
	same := slices.Equal(now.Prefixes, a.moving.Prefixes) && slices.Equal(now.Borders, a.moving.Borders)
	a.mu.Unlock()
	if !same {
		a.ask(ctx)
	}
}

// Refusal is a switch that has not taken the rules for first packets.
type Refusal struct {
	Switch openflow.DatapathID `json:"switch" doc:"Where critical flows enter unrecognised, and go like any traffic"`
	Reason string              `json:"reason"`
}

// Refusals lists the switches that have not taken the rules for first packets. It is
// tried again at each reading of the counters.
func (a *asker) Refusals() []Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []Refusal{}
	for d, err := range a.refused {
		out = append(out, Refusal{d, err.Error()})
	}
	slices.SortFunc(out, func(a, b Refusal) int { return cmp.Compare(a.Switch, b.Switch) })
	return out
}

// wholePacket asks a switch to send packets to the controller unabridged.
const wholePacket = 0xffff

// Punts are the rules that bring the first packets of critical traffic from one switch to the
// controller.
func Punts(d openflow.DatapathID, definitions []*Definition) (p network.Program) {
	seen := map[openflow.Match]bool{}
	for _, def := range definitions {
		for _, m := range def.Matches {
			p.Rules = punt(p.Rules, d, network.StageWay, rule.WayCriticalAsk, m, seen)
		}
	}
	return p
}

// punt adds a rule that brings packets up, unless it has been seen.
func punt(to []network.Rule, d openflow.DatapathID, stage network.Stage, offset uint16, m openflow.Match, seen map[openflow.Match]bool) []network.Rule {
	if seen[m] {
		return to
	}
	seen[m] = true
	return append(to, network.Rule{
		Switch: d, Stage: stage, Offset: offset, Match: m, Leased: true, Actions: []openflow.Action{openflow.OutputController(wholePacket)},
	})
}

// borderPunts are the rules that bring the first packets of critical traffic of hosts that
// move up, at the borders that they pass: before the rules that lead them.
func borderPunts(d openflow.DatapathID, definitions []*Definition, m network.Moving) (rules []network.Rule) {
	if !slices.ContainsFunc(m.Borders, func(at network.PortRef) bool { return at.Switch == d }) {
		return nil
	}
	seen := map[openflow.Match]bool{}
	for _, def := range definitions {
		for _, match := range def.Matches {
			for _, p := range m.Prefixes {
				for _, of := range []openflow.OXM{openflow.IPSrcPrefix(p), openflow.IPDstPrefix(p)} {
					if narrow, ok := narrowed(match, of); ok {
						rules = punt(rules, d, network.StageSelect, rule.SelectCriticalAsk, narrow, seen)
					}
				}
			}
		}
	}
	return rules
}

// narrowed is a match of those packets only that have an IPv4 address of a prefix; false if
// there are none.
func narrowed(m openflow.Match, prefix openflow.OXM) (openflow.Match, bool) {
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
