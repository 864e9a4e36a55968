package ovsdb

import (
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// SFlow is the configuration by which a bridge samples packets and reports counters (sFlow
// version 5).
type SFlow struct {
	// Targets are collectors, in the form ADDRESS:PORT.
	Targets []string
	// Agent is the interface whose address reports contain.
	Agent string
	// Header is the number of bytes of a sampled packet, Polling the seconds between two reports
	// of counters, Sampling the number of packets of which one is sampled. Zero means Open
	// vSwitch's default.
	Header, Polling, Sampling int

	owner string
}

func (f *SFlow) equal(o *SFlow) bool {
	return slices.Equal(f.Targets, o.Targets) && f.Agent == o.Agent && f.Header == o.Header && f.Polling == o.Polling && f.Sampling == o.Sampling
}

// sflow plans the sFlow configuration of a bridge, or its removal if f is nil.
func (p *planner) sflow(b Bridge, f *SFlow) error {
	mine := b.SFlow != nil && b.SFlow.owner == p.owner
	switch {
	case f == nil && mine:
		p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: "Bridge", Where: ifRefers(b.uuid, "sflow", b.sflow), Row: ovsdb.Row{"sflow": set()}})
		p.delete("sFlow", b.sflow)
	case f != nil && b.sflow == "":
		name := p.rowName()
		p.ops = append(p.ops,
			expectEmpty("Bridge", "sflow", b.uuid),
			ovsdb.Operation{Op: ovsdb.OperationInsert, Table: "sFlow", UUIDName: name, Row: p.sflowRow(f)},
			ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: "Bridge", Where: byUUID(b.uuid), Row: ovsdb.Row{"sflow": set(ovsdb.UUID{GoUUID: name})}})
	case f != nil && b.SFlow != nil && !mine:
		return fmt.Errorf("bridge %s: sFlow: %w: clear the bridge's sflow to have reports", b.Name, ErrForeign)
	case f != nil && b.SFlow != nil && !b.SFlow.equal(f):
		p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: "sFlow", Where: p.ifOwned(b.sflow), Row: p.sflowRow(f)})
	}
	return nil
}

func (p *planner) sflowRow(f *SFlow) ovsdb.Row {
	optional := func(n int) ovsdb.OvsSet {
		if n == 0 {
			return set()
		}
		return set(n)
	}
	agent := set()
	if f.Agent != "" {
		agent = set(f.Agent)
	}
	targets := set()
	for _, t := range f.Targets {
		targets.GoSet = append(targets.GoSet, t)
	}
	return ovsdb.Row{
		"targets": targets, "agent": agent, "header": optional(f.Header), "polling": optional(f.Polling), "sampling": optional(f.Sampling),
		"external_ids": textMap(map[string]string{OwnerTag: p.owner}),
	}
}

func readSFlow(row sflowRow) *SFlow {
	f := &SFlow{Targets: slices.Sorted(slices.Values(row.Targets)), owner: row.IDs[OwnerTag]}
	if row.Agent != nil {
		f.Agent = *row.Agent
	}
	for to, from := range map[*int]*int{&f.Header: row.Header, &f.Polling: row.Polling, &f.Sampling: row.Sampling} {
		if from != nil {
			*to = *from
		}
	}
	return f
}
