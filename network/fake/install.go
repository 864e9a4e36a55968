package fake

import (
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Install adds the part of a program for one switch to the table, in the form that the
// controller writes to a switch with one table. It adds groups and meters first. Each path's rule
// includes the actions of its mark. Install stops at the first error.
func (t *FlowTable) Install(sw openflow.DatapathID, p rule.Program) error {
	for _, m := range p.Meters {
		if m.Switch != sw {
			continue
		}
		if e := t.Meter(&openflow.MeterMod{Command: openflow.MeterAdd, Flags: m.Flags, Meter: m.ID, Bands: m.Bands}); e != nil {
			return fmt.Errorf("meter %d: %v", m.ID, e.Code)
		}
	}
	for _, g := range p.Groups {
		if g.Switch != sw {
			continue
		}
		if _, e := t.Group(&openflow.GroupMod{Command: openflow.GroupAdd, Type: g.Type, Group: g.ID, Buckets: g.Buckets}); e != nil {
			return fmt.Errorf("group %#x: %v", g.ID, e.Code)
		}
	}
	marks := map[rule.Key]*rule.Rule{}
	for i := range p.Rules {
		if r := &p.Rules[i]; r.Switch == sw && r.Stage == rule.StageClassify {
			marks[rule.WayOf(r.Key())] = r
		}
	}
	for _, r := range p.Rules {
		if r.Switch != sw || !rule.OneTable.Holds(&r) {
			continue
		}
		if mark := marks[r.Key()]; mark != nil && r.Stage == rule.StageWay {
			r = rule.Marked(&r, mark)
		}
		if e := t.install(&r); e != nil {
			return fmt.Errorf("rule of stage %v for %v: %v", r.Stage, r.Match, e.Code)
		}
	}
	return nil
}

func (t *FlowTable) install(r *rule.Rule) *openflow.Error {
	m := openflow.NewFlowMod(openflow.FlowAdd, 0, r.Priority(), r.Match)
	if r.Meter != 0 {
		m.Instructions = append(m.Instructions, openflow.Meter(r.Meter))
	}
	if len(r.Actions) > 0 {
		m.Instructions = append(m.Instructions, openflow.ApplyActions(r.Actions...))
	}
	m.IdleTimeout, m.HardTimeout = wholeSeconds(r.Idle), wholeSeconds(r.HardTimeout())
	_, e := t.Flow(m)
	return e
}

// wholeSeconds rounds a timeout up, as the controller does.
func wholeSeconds(d time.Duration) uint16 { return uint16((d + time.Second - 1) / time.Second) }
