package network

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// examineSwitches looks for configured switches and ports that do not exist, and for switches that
// obey another controller, and adds them to the report.
func (d *Doctor) examineSwitches(ctx context.Context, r *diagnosis.Report) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	var connected []diagnosis.Switch
	for _, s := range d.switches.list() {
		k := diagnosis.Switch{ID: s.dpid, Address: s.RemoteAddr().String(), Ports: map[uint32]bool{}}
		for _, p := range s.Ports() {
			k.Ports[p.Number] = p.Up()
		}
		if err := s.SetRole(ctx, openflow.RoleNoChange); err != nil {
			s.logLimiter.Warn(d.cfg.Log, "asking a switch for this controller's role", "switch", s.dpid, "error", err)
		}
		k.Role = s.Role()
		k.Drift = driftOf(s.comparer.stats())
		connected = append(connected, k)
	}
	r.Findings = append(r.Findings, diagnosis.Switches(d.configured(), connected, time.Now())...)
}

// driftOf converts the counts of a switch's comparisons.
func driftOf(s DriftStats) diagnosis.Drift {
	out := diagnosis.Drift{Times: s.Deviated, Last: s.Last, Differences: map[string]int{}}
	for _, d := range s.Deviations {
		out.Differences[cmp.Or(d.Owner, "nobody")+": "+string(d.Object)] += d.Missing + d.Changed + d.Foreign
	}
	return out
}

// configured returns the switches and ports that the configuration names.
func (d *Doctor) configured() []PortRef {
	at := map[PortRef]bool{}
	for id := range d.cfg.Names {
		at[PortRef{Switch: id}] = true
	}
	for p := range d.cfg.PortRoles {
		at[p] = true
	}
	for p := range d.cfg.Capacities {
		at[p] = true
	}
	return slices.Collect(maps.Keys(at))
}

// examineTables looks for faults of all switches' flow tables and adds them to the report.
func (d *Doctor) examineTables(ctx context.Context, r *diagnosis.Report) {
	for _, s := range d.switches.list() {
		found, err := tableFaults(ctx, s)
		if err != nil {
			found = []diagnosis.Finding{{
				Fault: diagnosis.Unexamined, Level: diagnosis.Warn, From: PortRef{Switch: s.dpid}, Found: fmt.Sprintf("the switch's rules could not be read: %v", err),
				Remedy: "see to it that the switch is up and not overloaded, and examine again",
			}}
		}
		r.Findings = append(r.Findings, found...)
	}
}

// tableFaults reads a switch's rules and the capacity it reports, and returns the faults of its
// tables.
func tableFaults(ctx context.Context, s *Switch) ([]diagnosis.Finding, error) {
	flows, done, err := askFlows(ctx, s.ch, openflow.AllFlows())
	if err != nil {
		return nil, err
	}
	defer done()
	var rules []openflow.FlowStats
	for f := range flows {
		rules = append(rules, *f)
	}
	capacity := map[uint8]uint32{}
	tables, read, _ := ask[openflow.TableFeaturesReply](ctx, s.ch, &openflow.TableFeaturesRequest{}) // many switches do not report this
	defer read()
	for t := range tables {
		capacity[t.Table] = t.MaxEntries
	}
	return diagnosis.Tables(s.dpid, rules, capacity, func(cookie uint64) bool { return rule.Cookie(cookie).Ours() }), nil
}
