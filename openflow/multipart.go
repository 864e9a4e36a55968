package openflow

import (
	"fmt"
	"strings"
)

// MultipartType is the number of a multipart type on the wire.
type MultipartType uint16

// The multipart types of OpenFlow 1.3.
const (
	MultipartDesc          MultipartType = 0
	MultipartFlow          MultipartType = 1
	MultipartAggregate     MultipartType = 2
	MultipartTable         MultipartType = 3
	MultipartPortStats     MultipartType = 4
	MultipartQueue         MultipartType = 5
	MultipartGroup         MultipartType = 6
	MultipartGroupDesc     MultipartType = 7
	MultipartGroupFeatures MultipartType = 8
	MultipartMeter         MultipartType = 9
	MultipartMeterConfig   MultipartType = 10
	MultipartMeterFeatures MultipartType = 11
	MultipartTableFeatures MultipartType = 12
	MultipartPortDesc      MultipartType = 13
	MultipartExperimenter  MultipartType = 0xffff
)

// MultipartBody is the body of a multipart message. The types of requests are called ...Request;
// replies that contain a list are called ...Reply.
type MultipartBody interface {
	// MultipartType returns the body's type number.
	MultipartType() MultipartType
	// String describes the body.
	String() string

	append(b []byte) ([]byte, error)
	decode(b []byte) error
}

type multipartInfo struct {
	name           string
	request, reply func() MultipartBody
}

// multiparts describes every multipart type.
var multiparts = map[MultipartType]multipartInfo{
	MultipartDesc:          {"desc", newBody[DescRequest], newBody[Desc]},
	MultipartFlow:          {"flow", newBody[FlowStatsRequest], newBody[FlowStatsReply]},
	MultipartAggregate:     {"aggregate", newBody[AggregateStatsRequest], newBody[AggregateStats]},
	MultipartTable:         {"table", newBody[TableStatsRequest], newBody[TableStatsReply]},
	MultipartPortStats:     {"port", newBody[PortStatsRequest], newBody[PortStatsReply]},
	MultipartQueue:         {"queue", newBody[QueueStatsRequest], newBody[QueueStatsReply]},
	MultipartGroup:         {"group", newBody[GroupStatsRequest], newBody[GroupStatsReply]},
	MultipartGroupDesc:     {"group_desc", newBody[GroupDescRequest], newBody[GroupDescReply]},
	MultipartGroupFeatures: {"group_features", newBody[GroupFeaturesRequest], newBody[GroupFeatures]},
	MultipartMeter:         {"meter", newBody[MeterStatsRequest], newBody[MeterStatsReply]},
	MultipartMeterConfig:   {"meter_config", newBody[MeterConfigRequest], newBody[MeterConfigReply]},
	MultipartMeterFeatures: {"meter_features", newBody[MeterFeaturesRequest], newBody[MeterFeatures]},
	MultipartTableFeatures: {"table_features", newBody[TableFeaturesRequest], newBody[TableFeaturesReply]},
	MultipartPortDesc:      {"port_desc", newBody[PortDescRequest], newBody[PortDescReply]},
	MultipartExperimenter:  {"experimenter", newBody[ExperimenterMultipart], newBody[ExperimenterMultipart]},
}

func newBody[T any, P interface {
	*T
	MultipartBody
}]() MultipartBody {
	return P(new(T))
}

// String returns the type's name.
func (t MultipartType) String() string {
	if info, ok := multiparts[t]; ok {
		return info.name
	}
	return fmt.Sprintf("multipart(%d)", uint16(t))
}

const (
	multipartHeader = 8
	flagMore        = 1
)

// MultipartRequest asks for statistics or descriptions.
type MultipartRequest struct {
	More bool // the request goes on in the next message
	Body MultipartBody
}

// MsgType returns TypeMultipartRequest.
func (*MultipartRequest) MsgType() MsgType { return TypeMultipartRequest }

// AppendTo appends the message to b.
func (m *MultipartRequest) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return appendMultipart(b, TypeMultipartRequest, xid, m.More, m.Body)
}

// Decode reads the message.
func (m *MultipartRequest) Decode(b []byte) (err error) {
	m.More, m.Body, err = decodeMultipart(b, TypeMultipartRequest)
	return err
}

// String describes the message.
func (m *MultipartRequest) String() string {
	return describeMultipart(TypeMultipartRequest, m.More, m.Body)
}

// MultipartReply answers a MultipartRequest. An answer that is too long for
// one message comes in several with the same transaction identifier, all but
// the last with More.
type MultipartReply struct {
	More bool
	Body MultipartBody
}

// MoreParts reports whether a message, whole with its header, is a part of an answer of which
// more parts follow.
func MoreParts(b []byte) bool {
	const flags = headerSize + 2
	return MsgType(b[1]) == TypeMultipartReply && len(b) >= flags+2 && be.Uint16(b[flags:])&flagMore != 0
}

// IsEmptyPart reports whether a whole message is an empty part of an answer that more parts
// follow.
func IsEmptyPart(b []byte) bool {
	const size = 16 // of the header, the kind and the flags (OpenFlow 1.3.5, section 7.3.5)
	return len(b) == size && MsgType(b[1]) == TypeMultipartReply && be.Uint16(b[10:])&flagMore != 0
}

// MsgType returns TypeMultipartReply.
func (*MultipartReply) MsgType() MsgType { return TypeMultipartReply }

// AppendTo appends the message to b.
func (m *MultipartReply) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return appendMultipart(b, TypeMultipartReply, xid, m.More, m.Body)
}

// Decode reads the message.
func (m *MultipartReply) Decode(b []byte) (err error) {
	m.More, m.Body, err = decodeMultipart(b, TypeMultipartReply)
	return err
}

// String describes the message.
func (m *MultipartReply) String() string {
	return describeMultipart(TypeMultipartReply, m.More, m.Body)
}

func appendMultipart(b []byte, t MsgType, xid uint32, more bool, content MultipartBody) ([]byte, error) {
	if content == nil {
		return b, fmt.Errorf("openflow: %v: %w: no body", t, ErrValue)
	}
	start := len(b)
	b = begin(b, t, xid)
	b = put16(b, uint16(content.MultipartType()))
	var flags uint16
	if more {
		flags = flagMore
	}
	b = pad(put16(b, flags), 4)
	b, err := content.append(b)
	return finish(b, start, err)
}

func decodeMultipart(b []byte, t MsgType) (more bool, _ MultipartBody, err error) {
	p, err := body(b, t)
	if err != nil {
		return false, nil, err
	}
	info, ok := multiparts[MultipartType(be.Uint16(p))]
	if !ok {
		return false, nil, &DecodeError{What: t.String(), Offset: headerSize, Err: ErrType, Detail: fmt.Sprintf("%d is no multipart type of OpenFlow 1.3", be.Uint16(p))}
	}
	content := info.reply()
	if t == TypeMultipartRequest {
		content = info.request()
	}
	if err := content.decode(p[multipartHeader:]); err != nil {
		return false, nil, fmt.Errorf("%v %s: %w", t, info.name, err)
	}
	return be.Uint16(p[2:])&flagMore != 0, content, nil
}

func describeMultipart(t MsgType, more bool, content MultipartBody) string {
	if content == nil {
		return t.String() + " empty"
	}
	s := fmt.Sprintf("%v %v %v", t, content.MultipartType(), content)
	if more {
		s += " (more)"
	}
	return strings.TrimRight(s, " ")
}

// parseRecords reads consecutive records of a fixed size.
func parseRecords[T any](what string, b []byte, size int, parse func([]byte) T) ([]T, error) {
	if len(b)%size != 0 {
		return nil, badLength(what, len(b)-len(b)%size, "%s left, a record has %d", plural(len(b)%size, "byte"), size)
	}
	records := make([]T, 0, len(b)/size)
	for ; len(b) > 0; b = b[size:] {
		records = append(records, parse(b[:size]))
	}
	return records, nil
}

// exactly checks the size of a body that has no variable part.
func exactly(what string, b []byte, size int) error {
	if len(b) < size {
		return tooShort(what, len(b), size)
	}
	return nothingLeft(what, b[size:])
}

// list describes records, one after the other.
func list[T fmt.Stringer](records []T) string {
	var s strings.Builder
	s.WriteString(fmt.Sprintf("%d", len(records)))
	for _, r := range records {
		fmt.Fprintf(&s, "; %v", r)
	}
	return s.String()
}

// ExperimenterMultipart is a request or reply that another organization has defined. Its content is
// not decoded.
type ExperimenterMultipart struct {
	Experimenter uint32
	ExpType      uint32
	Data         []byte
}

// MultipartType returns MultipartExperimenter.
func (*ExperimenterMultipart) MultipartType() MultipartType { return MultipartExperimenter }

func (m *ExperimenterMultipart) append(b []byte) ([]byte, error) {
	return append(put32(put32(b, m.Experimenter), m.ExpType), m.Data...), nil
}

func (m *ExperimenterMultipart) decode(b []byte) error {
	if len(b) < 8 {
		return tooShort("experimenter multipart", len(b), 8)
	}
	m.Experimenter, m.ExpType, m.Data = be.Uint32(b), be.Uint32(b[4:]), b[8:]
	return nil
}

// String describes the body.
func (m *ExperimenterMultipart) String() string {
	return fmt.Sprintf("experimenter=%#x type=%d data=%d bytes", m.Experimenter, m.ExpType, len(m.Data))
}
