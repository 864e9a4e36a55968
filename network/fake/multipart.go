package fake

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/sluice-net/sluice/openflow"
)

// entriesPerReply is how many entries one part of a reply holds.
const entriesPerReply = 100

// multipart answers a request for statistics or descriptions.
func (s *Switch) multipart(xid uint32, body openflow.MultipartBody) {
	switch q := body.(type) {
	case *openflow.DescRequest:
		s.sendPart(xid, &openflow.Desc{Manufacturer: "Sluice", Hardware: "none", Software: "fake switch", Serial: s.opts.DPID.String()}, false)
	case *openflow.PortDescRequest:
		for some, more := range splitReply(s.sortedPorts()) {
			r := openflow.PortDescReply(some)
			s.sendPart(xid, &r, more)
		}
	case *openflow.FlowStatsRequest:
		for some, more := range splitReply(s.table.Stats(q.FlowFilter)) {
			r := openflow.FlowStatsReply(some)
			s.sendPart(xid, &r, more)
		}
	case *openflow.GroupDescRequest:
		r := openflow.GroupDescReply(s.table.Groups())
		s.sendPart(xid, &r, false)
	case *openflow.GroupStatsRequest:
		for some, more := range splitReply(s.table.GroupStats()) {
			r := openflow.GroupStatsReply(some)
			s.sendPart(xid, &r, more)
		}
	case *openflow.MeterConfigRequest:
		r := openflow.MeterConfigReply(s.table.Meters())
		s.sendPart(xid, &r, false)
	case *openflow.PortStatsRequest:
		for some, more := range splitReply(s.portStats()) {
			r := openflow.PortStatsReply(some)
			s.sendPart(xid, &r, more)
		}
	case *openflow.TableFeaturesRequest:
		if s.opts.NoTableFeatures {
			s.refuse(xid, &openflow.MultipartRequest{Body: body}, &openflow.Error{Code: openflow.BadRequestMultipart})
			return
		}
		var all []openflow.TableFeatures
		for i := range max(1, s.opts.Tables) {
			all = append(all, tableFeatures(uint8(i), max(1, s.opts.Tables), s.table.Limit()))
		}
		for some, more := range splitReply(all) {
			r := openflow.TableFeaturesReply(some)
			s.sendPart(xid, &r, more)
		}
	default:
		s.refuse(xid, &openflow.MultipartRequest{Body: body}, &openflow.Error{Code: openflow.BadRequestMultipart})
	}
}

// splitReply returns an iterator over the parts of a reply, each with whether more follow. An
// empty reply has one part.
func splitReply[T any](all []T) iter.Seq2[[]T, bool] {
	return func(yield func([]T, bool) bool) {
		for len(all) > entriesPerReply {
			if !yield(all[:entriesPerReply], true) {
				return
			}
			all = all[entriesPerReply:]
		}
		yield(all, false)
	}
}

func (s *Switch) portStats() []openflow.PortStats {
	if s.opts.PortStats != nil {
		return s.opts.PortStats()
	}
	var out []openflow.PortStats
	for _, p := range s.sortedPorts() {
		c := s.portCounters[p.Number]
		c.Port = p.Number
		out = append(out, c)
	}
	return out
}

func (s *Switch) sendPart(xid uint32, body openflow.MultipartBody, more bool) {
	s.queue(&openflow.MultipartReply{More: more, Body: body}, xid)
}

func (s *Switch) sortedPorts() []openflow.Port {
	var out []openflow.Port
	for _, p := range s.ports {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b openflow.Port) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// tableFeatures returns the features of a table that matches every field, sets every settable
// field, and leads to all later tables.
func tableFeatures(table uint8, tables, limit int) openflow.TableFeatures {
	match := openflow.TableFeature{Type: openflow.TableMatch}
	set := openflow.TableFeature{Type: openflow.TableApplySetField}
	for f := openflow.Field(0); f.Valid(); f++ {
		match.Fields = append(match.Fields, openflow.NewFieldID(f, f.Maskable()))
		if f.Settable() {
			set.Fields = append(set.Fields, openflow.NewFieldID(f, false))
		}
	}
	next := openflow.TableFeature{Type: openflow.TableNextTables}
	for n := int(table) + 1; n < tables; n++ {
		next.Tables = append(next.Tables, uint8(n))
	}
	return openflow.TableFeatures{
		Table: table, Name: fmt.Sprintf("table%d", table), MaxEntries: uint32(limit),
		Features: []openflow.TableFeature{next, match, set},
	}
}

// dryRun returns the first error that a list of changes would cause, without applying them.
func (t *FlowTable) dryRun(changes []openflow.Message) *openflow.Error {
	t.mu.Lock()
	c := NewFlowTable(t.clock)
	c.limit = t.limit
	for _, e := range t.flows {
		copied := *e
		c.flows = append(c.flows, &copied)
	}
	for id, g := range t.groups {
		c.groups[id] = g
	}
	for id, m := range t.meters {
		c.meters[id] = m
	}
	t.mu.Unlock()
	for _, m := range changes {
		var e *openflow.Error
		switch m := m.(type) {
		case *openflow.FlowMod:
			_, e = c.Flow(m)
		case *openflow.GroupMod:
			_, e = c.Group(m)
		case *openflow.MeterMod:
			e = c.Meter(m)
		}
		if e != nil {
			return e
		}
	}
	return nil
}
