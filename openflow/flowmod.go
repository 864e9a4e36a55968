package openflow

import (
	"fmt"
	"strings"
)

// Commands of a flow modification.
const (
	FlowAdd          uint8 = 0
	FlowModify       uint8 = 1
	FlowModifyStrict uint8 = 2
	FlowDelete       uint8 = 3
	FlowDeleteStrict uint8 = 4
)

// Flags of a flow entry.
const (
	FlagSendFlowRemoved uint16 = 1 << 0
	FlagCheckOverlap    uint16 = 1 << 1
	FlagResetCounts     uint16 = 1 << 2
	FlagNoPacketCounts  uint16 = 1 << 3
	FlagNoByteCounts    uint16 = 1 << 4
)

var flowFlagNames = []string{"send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"}

// FlowMod adds, changes or deletes flow entries. NewFlowMod sets the fields that must not be
// zero: BufferID, OutPort and OutGroup.
type FlowMod struct {
	Cookie, CookieMask       uint64
	Table                    uint8
	Command                  uint8
	IdleTimeout, HardTimeout uint16 // seconds; 0: none
	Priority                 uint16
	BufferID                 uint32 // also apply to this buffered packet; NoBuffer: none
	OutPort                  uint32 // delete: only entries that output here; PortAny: all
	OutGroup                 uint32 // delete: only entries that use this group; GroupAny: all
	Flags                    uint16
	Match                    Match
	Instructions             []Instruction
}

// NewFlowMod returns a message that applies to no buffered packet and is not restricted to an
// output port or group.
func NewFlowMod(command, table uint8, priority uint16, match Match, instructions ...Instruction) *FlowMod {
	return &FlowMod{
		Table: table, Command: command, Priority: priority,
		BufferID: NoBuffer, OutPort: PortAny, OutGroup: GroupAny,
		Match: match, Instructions: instructions,
	}
}

// MsgType returns TypeFlowMod.
func (*FlowMod) MsgType() MsgType { return TypeFlowMod }

// AppendTo appends the message to b.
func (m *FlowMod) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, TypeFlowMod, xid)
	b = put64(b, m.Cookie)
	b = put64(b, m.CookieMask)
	b = append(b, m.Table, m.Command)
	b = put16(b, m.IdleTimeout)
	b = put16(b, m.HardTimeout)
	b = put16(b, m.Priority)
	b = put32(b, m.BufferID)
	b = put32(b, m.OutPort)
	b = put32(b, m.OutGroup)
	b = put16(b, m.Flags)
	b = pad(b, 2)
	b = m.Match.append(b)
	b, err := appendInstructions(b, m.Instructions)
	return finish(b, start, err)
}

// Decode reads the message.
func (m *FlowMod) Decode(b []byte) error {
	p, err := body(b, TypeFlowMod)
	if err != nil {
		return err
	}
	m.Cookie, m.CookieMask = be.Uint64(p), be.Uint64(p[8:])
	m.Table, m.Command = p[16], p[17]
	m.IdleTimeout, m.HardTimeout = be.Uint16(p[18:]), be.Uint16(p[20:])
	m.Priority = be.Uint16(p[22:])
	m.BufferID = be.Uint32(p[24:])
	m.OutPort, m.OutGroup = be.Uint32(p[28:]), be.Uint32(p[32:])
	m.Flags = be.Uint16(p[36:])
	match, rest, err := parseMatch(p[40:], m.Match)
	if err != nil {
		return err
	}
	m.Match = match
	m.Instructions, err = parseInstructions(rest)
	return err
}

// String describes the message in the manner of ovs-ofctl.
func (m *FlowMod) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "FLOW_MOD %s table=%d priority=%d", flowCommand(m.Command), m.Table, m.Priority)
	fmt.Fprintf(&s, " cookie=%#x", m.Cookie)
	if m.CookieMask != 0 {
		fmt.Fprintf(&s, "/%#x", m.CookieMask)
	}
	if m.IdleTimeout != 0 || m.HardTimeout != 0 {
		fmt.Fprintf(&s, " idle=%ds hard=%ds", m.IdleTimeout, m.HardTimeout)
	}
	if m.BufferID != NoBuffer {
		fmt.Fprintf(&s, " buffer=%d", m.BufferID)
	}
	if m.OutPort != PortAny {
		fmt.Fprintf(&s, " out_port=%s", PortName(m.OutPort))
	}
	if m.OutGroup != GroupAny {
		fmt.Fprintf(&s, " out_group=%s", groupName(m.OutGroup))
	}
	if m.Flags != 0 {
		fmt.Fprintf(&s, " flags=%s", bitNames(uint64(m.Flags), flowFlagNames))
	}
	fmt.Fprintf(&s, " match={%s} %s", m.Match, instructionList(m.Instructions))
	return s.String()
}

func flowCommand(c uint8) string {
	return name8(c, "add", "modify", "modify_strict", "delete", "delete_strict")
}

// Reasons for a flow-removed message.
const (
	RemovedIdle   uint8 = 0
	RemovedHard   uint8 = 1
	RemovedDelete uint8 = 2
	RemovedGroup  uint8 = 3
	RemovedMeter  uint8 = 4 // EXT-509
)

// FlowRemoved reports that a flow entry was removed, with its counters.
type FlowRemoved struct {
	Cookie                   uint64
	Priority                 uint16
	Reason                   uint8
	Table                    uint8
	Duration                 Duration // how long the entry lived
	IdleTimeout, HardTimeout uint16
	Packets, Bytes           uint64
	Match                    Match
}

// MsgType returns TypeFlowRemoved.
func (*FlowRemoved) MsgType() MsgType { return TypeFlowRemoved }

// AppendTo appends the message to b.
func (m *FlowRemoved) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, TypeFlowRemoved, xid)
	b = put64(b, m.Cookie)
	b = put16(b, m.Priority)
	b = append(b, m.Reason, m.Table)
	b = m.Duration.append(b)
	b = put16(b, m.IdleTimeout)
	b = put16(b, m.HardTimeout)
	b = put64(b, m.Packets)
	b = put64(b, m.Bytes)
	return finish(m.Match.append(b), start, nil)
}

// Decode reads the message. It allocates only the match.
func (m *FlowRemoved) Decode(b []byte) error {
	p, err := body(b, TypeFlowRemoved)
	if err != nil {
		return err
	}
	m.Cookie, m.Priority = be.Uint64(p), be.Uint16(p[8:])
	m.Reason, m.Table = p[10], p[11]
	m.Duration = parseDuration(p[12:])
	m.IdleTimeout, m.HardTimeout = be.Uint16(p[20:]), be.Uint16(p[22:])
	m.Packets, m.Bytes = be.Uint64(p[24:]), be.Uint64(p[32:])
	match, rest, err := parseMatch(p[40:], m.Match)
	if err != nil {
		return err
	}
	m.Match = match
	return nothingLeft("FLOW_REMOVED", rest)
}

// String describes the message.
func (m *FlowRemoved) String() string {
	return fmt.Sprintf("FLOW_REMOVED reason=%s table=%d priority=%d cookie=%#x duration=%v idle=%ds hard=%ds packets=%d bytes=%d match={%s}",
		name8(m.Reason, "idle", "hard", "delete", "group_delete", "meter_delete"), m.Table, m.Priority, m.Cookie,
		m.Duration, m.IdleTimeout, m.HardTimeout, m.Packets, m.Bytes, m.Match)
}
