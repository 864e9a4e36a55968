package openflow

import "fmt"

// emptyBody is a request that has no body.
type emptyBody struct{}

func (emptyBody) append(b []byte) ([]byte, error) { return b, nil }
func (emptyBody) decode(b []byte) error           { return nothingLeft("request", b) }

// String returns the empty string, because the request has no body.
func (emptyBody) String() string { return "" }

// Requests that have no body.
type (
	// DescRequest asks for a Desc.
	DescRequest struct{ emptyBody }
	// TableStatsRequest asks for a TableStatsReply.
	TableStatsRequest struct{ emptyBody }
	// GroupDescRequest asks for a GroupDescReply.
	GroupDescRequest struct{ emptyBody }
	// GroupFeaturesRequest asks for GroupFeatures.
	GroupFeaturesRequest struct{ emptyBody }
	// MeterFeaturesRequest asks for MeterFeatures.
	MeterFeaturesRequest struct{ emptyBody }
	// PortDescRequest asks for a PortDescReply.
	PortDescRequest struct{ emptyBody }
)

// MultipartType returns MultipartDesc.
func (*DescRequest) MultipartType() MultipartType { return MultipartDesc }

// MultipartType returns MultipartTable.
func (*TableStatsRequest) MultipartType() MultipartType { return MultipartTable }

// MultipartType returns MultipartGroupDesc.
func (*GroupDescRequest) MultipartType() MultipartType { return MultipartGroupDesc }

// MultipartType returns MultipartGroupFeatures.
func (*GroupFeaturesRequest) MultipartType() MultipartType { return MultipartGroupFeatures }

// MultipartType returns MultipartMeterFeatures.
func (*MeterFeaturesRequest) MultipartType() MultipartType { return MultipartMeterFeatures }

// MultipartType returns MultipartPortDesc.
func (*PortDescRequest) MultipartType() MultipartType { return MultipartPortDesc }

// FlowFilter selects flow entries. AllFlows selects all of them.
type FlowFilter struct {
	Table              uint8  // TableAll: all
	OutPort            uint32 // PortAny: whatever the output
	OutGroup           uint32 // GroupAny: whatever the group
	Cookie, CookieMask uint64 // entries whose cookie has these bits
	Match              Match  // entries that Match covers
}

// AllFlows returns the filter that selects every entry.
func AllFlows() FlowFilter {
	return FlowFilter{Table: TableAll, OutPort: PortAny, OutGroup: GroupAny}
}

func (f *FlowFilter) append(b []byte) ([]byte, error) {
	b = append(b, f.Table, 0, 0, 0)
	b = pad(put32(put32(b, f.OutPort), f.OutGroup), 4)
	b = put64(put64(b, f.Cookie), f.CookieMask)
	return f.Match.append(b), nil
}

func (f *FlowFilter) decode(b []byte) error {
	if len(b) < 40 {
		return tooShort("flow request", len(b), 40)
	}
	f.Table, f.OutPort, f.OutGroup = b[0], be.Uint32(b[4:]), be.Uint32(b[8:])
	f.Cookie, f.CookieMask = be.Uint64(b[16:]), be.Uint64(b[24:])
	match, rest, err := parseMatch(b[32:], f.Match)
	if err != nil {
		return err
	}
	f.Match = match
	return nothingLeft("flow request", rest)
}

// String describes the filter.
func (f *FlowFilter) String() string {
	table := "all"
	if f.Table != TableAll {
		table = fmt.Sprint(f.Table)
	}
	return fmt.Sprintf("table=%s out_port=%s out_group=%s cookie=%#x/%#x match={%v}",
		table, PortName(f.OutPort), groupName(f.OutGroup), f.Cookie, f.CookieMask, f.Match)
}

// FlowStatsRequest asks for a FlowStatsReply.
type FlowStatsRequest struct{ FlowFilter }

// MultipartType returns MultipartFlow.
func (*FlowStatsRequest) MultipartType() MultipartType { return MultipartFlow }

// AggregateStatsRequest asks for AggregateStats.
type AggregateStatsRequest struct{ FlowFilter }

// MultipartType returns MultipartAggregate.
func (*AggregateStatsRequest) MultipartType() MultipartType { return MultipartAggregate }

// append32 and decode32 serve requests that are one number and padding.
func append32(b []byte, v uint32) ([]byte, error) { return pad(put32(b, v), 4), nil }

func decode32(what string, b []byte, v *uint32) error {
	if err := exactly(what, b, 8); err != nil {
		return err
	}
	*v = be.Uint32(b)
	return nil
}

// PortStatsRequest asks for a PortStatsReply.
type PortStatsRequest struct{ Port uint32 } // PortAny: all

// MultipartType returns MultipartPortStats.
func (*PortStatsRequest) MultipartType() MultipartType      { return MultipartPortStats }
func (r *PortStatsRequest) append(b []byte) ([]byte, error) { return append32(b, r.Port) }
func (r *PortStatsRequest) decode(b []byte) error           { return decode32("port request", b, &r.Port) }

// String describes the request.
func (r *PortStatsRequest) String() string { return "port=" + PortName(r.Port) }

// QueueStatsRequest asks for a QueueStatsReply.
type QueueStatsRequest struct {
	Port  uint32 // PortAny: all
	Queue uint32 // QueueAll: all
}

// MultipartType returns MultipartQueue.
func (*QueueStatsRequest) MultipartType() MultipartType { return MultipartQueue }

func (r *QueueStatsRequest) append(b []byte) ([]byte, error) {
	return put32(put32(b, r.Port), r.Queue), nil
}

func (r *QueueStatsRequest) decode(b []byte) error {
	if err := exactly("queue request", b, 8); err != nil {
		return err
	}
	r.Port, r.Queue = be.Uint32(b), be.Uint32(b[4:])
	return nil
}

// String describes the request.
func (r *QueueStatsRequest) String() string {
	return fmt.Sprintf("port=%s queue=%s", PortName(r.Port), queueName(r.Queue))
}

func queueName(id uint32) string {
	if id == QueueAll {
		return "all"
	}
	return fmt.Sprint(id)
}

// GroupStatsRequest asks for a GroupStatsReply.
type GroupStatsRequest struct{ Group uint32 } // GroupAll: all

// MultipartType returns MultipartGroup.
func (*GroupStatsRequest) MultipartType() MultipartType      { return MultipartGroup }
func (r *GroupStatsRequest) append(b []byte) ([]byte, error) { return append32(b, r.Group) }
func (r *GroupStatsRequest) decode(b []byte) error           { return decode32("group request", b, &r.Group) }

// String describes the request.
func (r *GroupStatsRequest) String() string { return "group=" + groupName(r.Group) }

// MeterStatsRequest asks for a MeterStatsReply.
type MeterStatsRequest struct{ Meter uint32 } // MeterAll: all

// MultipartType returns MultipartMeter.
func (*MeterStatsRequest) MultipartType() MultipartType      { return MultipartMeter }
func (r *MeterStatsRequest) append(b []byte) ([]byte, error) { return append32(b, r.Meter) }
func (r *MeterStatsRequest) decode(b []byte) error           { return decode32("meter request", b, &r.Meter) }

// String describes the request.
func (r *MeterStatsRequest) String() string { return "meter=" + meterName(r.Meter) }

// MeterConfigRequest asks for a MeterConfigReply.
type MeterConfigRequest struct{ Meter uint32 } // MeterAll: all

// MultipartType returns MultipartMeterConfig.
func (*MeterConfigRequest) MultipartType() MultipartType      { return MultipartMeterConfig }
func (r *MeterConfigRequest) append(b []byte) ([]byte, error) { return append32(b, r.Meter) }
func (r *MeterConfigRequest) decode(b []byte) error           { return decode32("meter request", b, &r.Meter) }

// String describes the request.
func (r *MeterConfigRequest) String() string { return "meter=" + meterName(r.Meter) }
