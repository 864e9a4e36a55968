package network

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// examineTables looks for the faults of all switches' flow tables and adds them to a
// report.
func (d *Doctor) examineTables(ctx context.Context, r *diagnosis.Report) {
	for _, s := range d.switches.list() {
		found, err := s.examineTables(ctx)
		if err != nil {
			found = []diagnosis.Finding{{
				Fault: diagnosis.Unexamined, Level: diagnosis.Warn, From: PortRef{Switch: s.dpid}, Found: fmt.Sprintf("the switch's rules could not be read: %v", err),
				Remedy: "see to it that the switch is up and not overloaded, and examine again",
			}}
		}
		r.Findings = append(r.Findings, found...)
	}
}

// examineTables reads what the switch has, and what it says that it takes.
func (s *Switch) examineTables(ctx context.Context) ([]diagnosis.Finding, error) {
	parts, err := s.ch.multipart(ctx, &openflow.FlowStatsRequest{FlowFilter: openflow.AllFlows()})
	if err != nil {
		return nil, err
	}
	var rules []openflow.FlowStats
	for _, p := range parts {
		rules = append(rules, *p.(*openflow.FlowStatsReply)...)
	}
	capacity := map[uint8]uint32{}
	if parts, err = s.ch.multipart(ctx, &openflow.TableFeaturesRequest{}); err == nil { // many switches do not tell
		for _, p := range parts {
			for _, t := range *p.(*openflow.TableFeaturesReply) {
				capacity[t.Table] = t.MaxEntries
			}
		}
	}
	return diagnosis.Tables(s.dpid, rules, capacity, func(cookie uint64) bool { return rule.Cookie(cookie).Ours() }), nil
}
