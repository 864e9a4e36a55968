package openflow

import "fmt"

// Desc describes the switch's make. The strings have at most 255 bytes, the serial number at
// most 31.
type Desc struct {
	Manufacturer, Hardware, Software, Serial, Datapath string
}

const descSize = 4*256 + 32

// MultipartType returns MultipartDesc.
func (*Desc) MultipartType() MultipartType { return MultipartDesc }

func (d *Desc) append(b []byte) ([]byte, error) {
	b = putString(b, d.Manufacturer, 256)
	b = putString(b, d.Hardware, 256)
	b = putString(b, d.Software, 256)
	b = putString(b, d.Serial, 32)
	return putString(b, d.Datapath, 256), nil
}

func (d *Desc) decode(b []byte) error {
	if err := exactly("desc", b, descSize); err != nil {
		return err
	}
	*d = Desc{cString(b[:256]), cString(b[256:512]), cString(b[512:768]), cString(b[768:800]), cString(b[800:])}
	return nil
}

// String describes the body.
func (d *Desc) String() string {
	return fmt.Sprintf("manufacturer=%q hardware=%q software=%q serial=%q datapath=%q",
		d.Manufacturer, d.Hardware, d.Software, d.Serial, d.Datapath)
}

// FlowStats is a flow entry with its counters.
type FlowStats struct {
	Table                    uint8
	Duration                 Duration
	Priority                 uint16
	IdleTimeout, HardTimeout uint16
	Flags                    uint16
	Cookie                   uint64
	Packets, Bytes           uint64
	Match                    Match
	Instructions             []Instruction
}

const flowStatsHeader = 48

// FlowStatsReply answers a FlowStatsRequest.
type FlowStatsReply []FlowStats

// MultipartType returns MultipartFlow.
func (*FlowStatsReply) MultipartType() MultipartType { return MultipartFlow }

func (r *FlowStatsReply) append(b []byte) (_ []byte, err error) {
	for i := range *r {
		f := &(*r)[i]
		start := len(b)
		b = append(b, 0, 0, f.Table, 0)
		b = f.Duration.append(b)
		b = put16(put16(b, f.Priority), f.IdleTimeout)
		b = put16(put16(b, f.HardTimeout), f.Flags)
		b = pad(b, 4)
		b = put64(put64(put64(b, f.Cookie), f.Packets), f.Bytes)
		b = f.Match.append(b)
		if b, err = appendInstructions(b, f.Instructions); err != nil {
			return b, err
		}
		setLen16(b, start, 0)
	}
	return b, nil
}

func (r *FlowStatsReply) decode(b []byte) error {
	it := iterate(b, &flowStatsShape)
	for it.step() {
		var f FlowStats
		if err := f.decode(it.elem); err != nil {
			return fmt.Errorf("entry at byte %d: %w", it.at, err)
		}
		*r = append(*r, f)
	}
	return it.err
}

func (f *FlowStats) decode(b []byte) error {
	match, rest, err := parseMatch(b[flowStatsHeader:], Match{})
	if err != nil {
		return err
	}
	ins, err := parseInstructions(rest)
	*f = FlowStats{
		Table: b[2], Duration: parseDuration(b[4:]), Priority: be.Uint16(b[12:]),
		IdleTimeout: be.Uint16(b[14:]), HardTimeout: be.Uint16(b[16:]), Flags: be.Uint16(b[18:]),
		Cookie: be.Uint64(b[24:]), Packets: be.Uint64(b[32:]), Bytes: be.Uint64(b[40:]),
		Match: match, Instructions: ins,
	}
	return err
}

// String describes the entry.
func (f FlowStats) String() string {
	return fmt.Sprintf("table=%d priority=%d cookie=%#x duration=%v idle=%ds hard=%ds flags=%s packets=%d bytes=%d match={%v} %s",
		f.Table, f.Priority, f.Cookie, f.Duration, f.IdleTimeout, f.HardTimeout, bitNames(uint64(f.Flags), flowFlagNames),
		f.Packets, f.Bytes, f.Match, instructionList(f.Instructions))
}

// String describes the body.
func (r *FlowStatsReply) String() string { return list(*r) }

// AggregateStats sums up flow entries.
type AggregateStats struct {
	Packets, Bytes uint64
	Flows          uint32
}

// MultipartType returns MultipartAggregate.
func (*AggregateStats) MultipartType() MultipartType { return MultipartAggregate }

func (a *AggregateStats) append(b []byte) ([]byte, error) {
	return pad(put32(put64(put64(b, a.Packets), a.Bytes), a.Flows), 4), nil
}

func (a *AggregateStats) decode(b []byte) error {
	if err := exactly("aggregate", b, 24); err != nil {
		return err
	}
	*a = AggregateStats{Packets: be.Uint64(b), Bytes: be.Uint64(b[8:]), Flows: be.Uint32(b[16:])}
	return nil
}

// String describes the body.
func (a *AggregateStats) String() string {
	return fmt.Sprintf("packets=%d bytes=%d flows=%d", a.Packets, a.Bytes, a.Flows)
}

// TableStats counts the packets of a table.
type TableStats struct {
	Table            uint8
	Active           uint32 // entries
	Lookups, Matched uint64
}

const tableStatsSize = 24

// TableStatsReply answers a TableStatsRequest.
type TableStatsReply []TableStats

// MultipartType returns MultipartTable.
func (*TableStatsReply) MultipartType() MultipartType { return MultipartTable }

func (r *TableStatsReply) append(b []byte) ([]byte, error) {
	for _, t := range *r {
		b = put32(append(b, t.Table, 0, 0, 0), t.Active)
		b = put64(put64(b, t.Lookups), t.Matched)
	}
	return b, nil
}

func (r *TableStatsReply) decode(b []byte) (err error) {
	*r, err = parseRecords("table stats", b, tableStatsSize, func(b []byte) TableStats {
		return TableStats{Table: b[0], Active: be.Uint32(b[4:]), Lookups: be.Uint64(b[8:]), Matched: be.Uint64(b[16:])}
	})
	return err
}

// String describes the table's counters.
func (t TableStats) String() string {
	return fmt.Sprintf("table=%d active=%d lookups=%d matched=%d", t.Table, t.Active, t.Lookups, t.Matched)
}

// String describes the body.
func (r *TableStatsReply) String() string { return list(*r) }
