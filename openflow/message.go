package openflow

import "fmt"

// MsgType is the number of a message type on the wire.
type MsgType uint8

// The message types of OpenFlow 1.3.
const (
	TypeHello            MsgType = 0
	TypeError            MsgType = 1
	TypeEchoRequest      MsgType = 2
	TypeEchoReply        MsgType = 3
	TypeExperimenter     MsgType = 4
	TypeFeaturesRequest  MsgType = 5
	TypeFeaturesReply    MsgType = 6
	TypeGetConfigRequest MsgType = 7
	TypeGetConfigReply   MsgType = 8
	TypeSetConfig        MsgType = 9
	TypePacketIn         MsgType = 10
	TypeFlowRemoved      MsgType = 11
	TypePortStatus       MsgType = 12
	TypePacketOut        MsgType = 13
	TypeFlowMod          MsgType = 14
	TypeGroupMod         MsgType = 15
	TypePortMod          MsgType = 16
	TypeTableMod         MsgType = 17
	TypeMultipartRequest MsgType = 18
	TypeMultipartReply   MsgType = 19
	TypeBarrierRequest   MsgType = 20
	TypeBarrierReply     MsgType = 21
	TypeQueueGetRequest  MsgType = 22
	TypeQueueGetReply    MsgType = 23
	TypeRoleRequest      MsgType = 24
	TypeRoleReply        MsgType = 25
	TypeGetAsyncRequest  MsgType = 26
	TypeGetAsyncReply    MsgType = 27
	TypeSetAsync         MsgType = 28
	TypeMeterMod         MsgType = 29

	// NumTypes is the number of message types.
	NumTypes = 30
)

type messageInfo struct {
	name string // as in the specification, without its prefix
	size int    // smallest size in bytes, header included
	make func() Message
}

// messages describes every message type.
var messages = [NumTypes]messageInfo{
	TypeHello:            {"HELLO", 8, func() Message { return new(Hello) }},
	TypeError:            {"ERROR", 12, func() Message { return new(Error) }},
	TypeEchoRequest:      {"ECHO_REQUEST", 8, func() Message { return new(EchoRequest) }},
	TypeEchoReply:        {"ECHO_REPLY", 8, func() Message { return new(EchoReply) }},
	TypeExperimenter:     {"EXPERIMENTER", 16, func() Message { return new(Experimenter) }},
	TypeFeaturesRequest:  {"FEATURES_REQUEST", 8, func() Message { return new(FeaturesRequest) }},
	TypeFeaturesReply:    {"FEATURES_REPLY", 32, func() Message { return new(FeaturesReply) }},
	TypeGetConfigRequest: {"GET_CONFIG_REQUEST", 8, func() Message { return new(GetConfigRequest) }},
	TypeGetConfigReply:   {"GET_CONFIG_REPLY", 12, func() Message { return new(GetConfigReply) }},
	TypeSetConfig:        {"SET_CONFIG", 12, func() Message { return new(SetConfig) }},
	TypePacketIn:         {"PACKET_IN", 34, func() Message { return new(PacketIn) }},
	TypeFlowRemoved:      {"FLOW_REMOVED", 56, func() Message { return new(FlowRemoved) }},
	TypePortStatus:       {"PORT_STATUS", 80, func() Message { return new(PortStatus) }},
	TypePacketOut:        {"PACKET_OUT", 24, func() Message { return new(PacketOut) }},
	TypeFlowMod:          {"FLOW_MOD", 56, func() Message { return new(FlowMod) }},
	TypeGroupMod:         {"GROUP_MOD", 16, func() Message { return new(GroupMod) }},
	TypePortMod:          {"PORT_MOD", 40, func() Message { return new(PortMod) }},
	TypeTableMod:         {"TABLE_MOD", 16, func() Message { return new(TableMod) }},
	TypeMultipartRequest: {"MULTIPART_REQUEST", 16, func() Message { return new(MultipartRequest) }},
	TypeMultipartReply:   {"MULTIPART_REPLY", 16, func() Message { return new(MultipartReply) }},
	TypeBarrierRequest:   {"BARRIER_REQUEST", 8, func() Message { return new(BarrierRequest) }},
	TypeBarrierReply:     {"BARRIER_REPLY", 8, func() Message { return new(BarrierReply) }},
	TypeQueueGetRequest:  {"QUEUE_GET_CONFIG_REQUEST", 16, func() Message { return new(QueueConfigRequest) }},
	TypeQueueGetReply:    {"QUEUE_GET_CONFIG_REPLY", 16, func() Message { return new(QueueConfigReply) }},
	TypeRoleRequest:      {"ROLE_REQUEST", 24, func() Message { return new(RoleRequest) }},
	TypeRoleReply:        {"ROLE_REPLY", 24, func() Message { return new(RoleReply) }},
	TypeGetAsyncRequest:  {"GET_ASYNC_REQUEST", 8, func() Message { return new(GetAsyncRequest) }},
	TypeGetAsyncReply:    {"GET_ASYNC_REPLY", 32, func() Message { return new(GetAsyncReply) }},
	TypeSetAsync:         {"SET_ASYNC", 32, func() Message { return new(SetAsync) }},
	TypeMeterMod:         {"METER_MOD", 16, func() Message { return new(MeterMod) }},
}

// String returns the name of the type as in the specification, without prefix.
func (t MsgType) String() string {
	if int(t) < len(messages) {
		return messages[t].name
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// Message is an OpenFlow message. It does not contain the transaction identifier, which belongs
// to the exchange and is in the Header.
type Message interface {
	// MsgType returns the message's type number.
	MsgType() MsgType
	// AppendTo appends the whole message to b. On error b comes back as given.
	AppendTo(b []byte, xid uint32) ([]byte, error)
	// Decode reads one whole message, header included. It replaces all fields
	// of the receiver. Byte slices of the result point into b.
	Decode(b []byte) error
	// String describes the message for people, on one line.
	String() string
}

// Header begins every message.
type Header struct {
	Version uint8
	Type    MsgType
	Length  uint16 // of the whole message
	XID     uint32 // pairs a reply with its request
}

// ParseHeader reads the header at the start of b. It checks the length against
// the header's own size only: b may hold more or less than the message.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < headerSize {
		return Header{}, tooShort("header", len(b), headerSize)
	}
	h := Header{Version: b[0], Type: MsgType(b[1]), Length: be.Uint16(b[2:]), XID: be.Uint32(b[4:])}
	if h.Length < headerSize {
		return h, badLength("header", 2, "%d, below the header's %d", h.Length, headerSize)
	}
	return h, nil
}

// XID returns the transaction identifier of a whole message.
func XID(b []byte) uint32 {
	if len(b) < headerSize {
		return 0
	}
	return be.Uint32(b[4:])
}

// Decode decodes one whole message into the Go type for its header. If there is an error, the
// header is valid as far as it could be read.
//
// Known experimenter messages (bundles, the extended group modification) have their own types,
// all others are *Experimenter.
func Decode(b []byte) (Header, Message, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return h, nil, err
	}
	if int(h.Type) >= len(messages) {
		return h, nil, &DecodeError{What: "header", Offset: 1, Err: ErrType, Detail: fmt.Sprintf("%d is no message of OpenFlow 1.3", uint8(h.Type))}
	}
	m := messages[h.Type].make()
	if h.Type == TypeExperimenter && len(b) >= 16 {
		m = newExperimenter(be.Uint32(b[8:]), be.Uint32(b[12:]))
	}
	if err := m.Decode(b); err != nil {
		return h, nil, err
	}
	return h, m, nil
}

// body checks the header of a whole message of type t and returns what follows
// the header.
func body(b []byte, t MsgType) ([]byte, error) {
	info := &messages[t]
	if len(b) < info.size {
		return nil, tooShort(info.name, len(b), info.size)
	}
	if b[0] != Version && t != TypeHello && t != TypeError {
		return nil, &DecodeError{What: info.name, Err: ErrVersion, Detail: fmt.Sprintf("%#02x, want %#02x", b[0], Version)}
	}
	if MsgType(b[1]) != t {
		return nil, &DecodeError{What: info.name, Offset: 1, Err: ErrType, Detail: MsgType(b[1]).String()}
	}
	if n := int(be.Uint16(b[2:])); n != len(b) {
		return nil, badLength(info.name, 2, "%d, but the message has %s", n, plural(len(b), "byte"))
	}
	return b[headerSize:len(b):len(b)], nil
}
