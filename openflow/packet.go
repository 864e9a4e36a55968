package openflow

import "fmt"

// Reasons for a packet-in.
const (
	ReasonNoMatch    uint8 = 0 // a table-miss entry sent it
	ReasonAction     uint8 = 1 // an output action sent it
	ReasonInvalidTTL uint8 = 2
)

// PacketIn brings a packet to the controller.
type PacketIn struct {
	BufferID uint32 // NoBuffer when Data is the whole packet
	TotalLen uint16 // size of the packet in bytes
	Reason   uint8
	Table    uint8
	Cookie   uint64 // of the entry that sent it
	InPort   uint32 // from Fields
	Fields   OXMs   // in_port and other fields of the packet's context
	Data     []byte // the packet, or the start of it
}

// MsgType returns TypePacketIn.
func (*PacketIn) MsgType() MsgType { return TypePacketIn }

// AppendTo appends the message to b. When Fields is empty, in_port is written
// from InPort.
func (m *PacketIn) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, TypePacketIn, xid)
	b = put32(b, m.BufferID)
	b = put16(b, m.TotalLen)
	b = append(b, m.Reason, m.Table)
	b = put64(b, m.Cookie)
	if len(m.Fields) == 0 {
		b = append(b, 0, 1, 0, 12, classBasic>>8, 0, 0, 4)
		b = pad(put32(b, m.InPort), 4)
	} else {
		b = appendMatch(b, []byte(m.Fields))
	}
	b = pad(b, 2)
	return finish(append(b, m.Data...), start, nil)
}

// Decode reads the message in place and does not allocate.
func (m *PacketIn) Decode(b []byte) error {
	p, err := body(b, TypePacketIn)
	if err != nil {
		return err
	}
	m.BufferID = be.Uint32(p)
	m.TotalLen = be.Uint16(p[4:])
	m.Reason, m.Table = p[6], p[7]
	m.Cookie = be.Uint64(p[8:])
	oxms, rest, err := splitMatch(p[16:])
	if err != nil {
		return err
	}
	if len(rest) < 2 {
		return tooShort("PACKET_IN", len(b), len(b)+2-len(rest))
	}
	m.Fields, m.Data = oxms, rest[2:]
	m.InPort, err = inPort(oxms)
	return err
}

// inPort checks the list and returns the value of in_port. It does not build
// the other fields.
func inPort(oxms OXMs) (uint32, error) {
	var port uint32
	found := false
	it := iterate(oxms, &oxmShape)
	for it.step() {
		if be.Uint32(it.elem) == classBasic<<16|4 && len(it.elem) == 8 {
			port, found = be.Uint32(it.elem[4:]), true
		}
	}
	if it.err == nil && !found {
		return 0, badValue("PACKET_IN", headerSize+16, "no in_port among the fields")
	}
	return port, it.err
}

// String describes the message.
func (m *PacketIn) String() string {
	return fmt.Sprintf("PACKET_IN reason=%s table=%d cookie=%#x in_port=%s buffer=%s total_len=%d data=%d bytes fields={%s}",
		packetInReason(m.Reason), m.Table, m.Cookie, PortName(m.InPort), bufferName(m.BufferID), m.TotalLen, len(m.Data), m.Fields)
}

func packetInReason(r uint8) string {
	return name8(r, "no_match", "action", "invalid_ttl")
}

func bufferName(id uint32) string {
	if id == NoBuffer {
		return "none"
	}
	return fmt.Sprint(id)
}

// PacketOut makes a switch send a packet.
type PacketOut struct {
	BufferID uint32 // NoBuffer when Data is the packet
	InPort   uint32 // the port by which the packet is said to have arrived
	Actions  []Action
	Data     []byte
}

// NewPacketOut returns a message that contains the packet itself.
func NewPacketOut(inPort uint32, actions []Action, data []byte) *PacketOut {
	return &PacketOut{BufferID: NoBuffer, InPort: inPort, Actions: actions, Data: data}
}

// MsgType returns TypePacketOut.
func (*PacketOut) MsgType() MsgType { return TypePacketOut }

// AppendTo appends the message to b.
func (m *PacketOut) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, TypePacketOut, xid)
	b = put32(b, m.BufferID)
	b = put32(b, m.InPort)
	b = pad(b, 8)
	actions := len(b)
	b, err := appendActions(b, m.Actions)
	if n := len(b) - actions; err == nil && n <= MaxMessage {
		be.PutUint16(b[actions-8:], uint16(n))
	}
	return finish(append(b, m.Data...), start, err)
}

// Decode reads the message.
func (m *PacketOut) Decode(b []byte) (err error) {
	p, err := body(b, TypePacketOut)
	if err != nil {
		return err
	}
	m.BufferID, m.InPort = be.Uint32(p), be.Uint32(p[4:])
	n := int(be.Uint16(p[8:]))
	rest := p[16:]
	if n > len(rest) {
		return badLength("PACKET_OUT", headerSize+8, "actions of %d bytes, %d are left", n, len(rest))
	}
	m.Actions, err = parseActions(m.Actions[:0], rest[:n])
	m.Data = rest[n:]
	return err
}

// String describes the message.
func (m *PacketOut) String() string {
	return fmt.Sprintf("PACKET_OUT in_port=%s buffer=%s actions=%s data=%d bytes",
		PortName(m.InPort), bufferName(m.BufferID), actionList(m.Actions), len(m.Data))
}
