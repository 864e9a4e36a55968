package fake

import (
	"cmp"
	"slices"

	"github.com/sluice-net/sluice/openflow"
)

// flowsPerReply is how many entries go into one part of a reply.
const flowsPerReply = 100

// multipart answers a request for statistics or descriptions.
func (s *Switch) multipart(xid uint32, body openflow.MultipartBody) {
	switch q := body.(type) {
	case *openflow.DescRequest:
		s.part(xid, &openflow.Desc{Manufacturer: "Sluice", Hardware: "none", Software: "fake switch", Serial: s.opts.DPID.String()}, false)
	case *openflow.PortDescRequest:
		r := openflow.PortDescReply(s.sortedPorts())
		s.part(xid, &r, false)
	case *openflow.FlowStatsRequest:
		all := s.table.Stats(q.FlowFilter)
		for len(all) > flowsPerReply {
			r := openflow.FlowStatsReply(all[:flowsPerReply])
			s.part(xid, &r, true)
			all = all[flowsPerReply:]
		}
		r := openflow.FlowStatsReply(all)
		s.part(xid, &r, false)
	case *openflow.GroupDescRequest:
		r := openflow.GroupDescReply(s.table.Groups())
		s.part(xid, &r, false)
	case *openflow.MeterConfigRequest:
		r := openflow.MeterConfigReply(s.table.Meters())
		s.part(xid, &r, false)
	case *openflow.PortStatsRequest:
		var r openflow.PortStatsReply
		for _, p := range s.sortedPorts() {
			r = append(r, openflow.PortStats{Port: p.Number})
		}
		s.part(xid, &r, false)
	case *openflow.TableFeaturesRequest:
		if s.opts.NoTableFeatures {
			s.refuse(xid, &openflow.MultipartRequest{Body: body}, &openflow.Error{Code: openflow.BadRequestMultipart})
			return
		}
		r := openflow.TableFeaturesReply{features()}
		s.part(xid, &r, false)
	default:
		s.refuse(xid, &openflow.MultipartRequest{Body: body}, &openflow.Error{Code: openflow.BadRequestMultipart})
	}
}

func (s *Switch) part(xid uint32, body openflow.MultipartBody, more bool) {
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

// features says that table 0 matches every field and sets every field that can be.
func features() openflow.TableFeatures {
	match := openflow.TableFeature{Type: openflow.TableMatch}
	set := openflow.TableFeature{Type: openflow.TableApplySetField}
	for f := openflow.Field(0); f.Valid(); f++ {
		match.Fields = append(match.Fields, openflow.NewFieldID(f, f.Maskable()))
		if f.Settable() {
			set.Fields = append(set.Fields, openflow.NewFieldID(f, false))
		}
	}
	return openflow.TableFeatures{Name: "table0", MaxEntries: MaxEntries, Features: []openflow.TableFeature{match, set}}
}

// tryAll reports the first error that a list of changes would meet, without
// making them.
func (t *FlowTable) tryAll(changes []openflow.Message) *openflow.Error {
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
