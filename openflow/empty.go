package openflow

import "fmt"

// Messages that consist of the header only.
type (
	// FeaturesRequest asks for a FeaturesReply.
	FeaturesRequest struct{}
	// GetConfigRequest asks for a GetConfigReply.
	GetConfigRequest struct{}
	// BarrierRequest asks the switch to process everything that came before it, and then to send
	// a BarrierReply.
	BarrierRequest struct{}
	// BarrierReply confirms that everything before the request has been processed.
	BarrierReply struct{}
	// GetAsyncRequest asks for a GetAsyncReply.
	GetAsyncRequest struct{}
)

func appendEmpty(b []byte, t MsgType, xid uint32) ([]byte, error) {
	start := len(b)
	return finish(begin(b, t, xid), start, nil)
}

func decodeEmpty(b []byte, t MsgType) error {
	p, err := body(b, t)
	if err != nil {
		return err
	}
	return nothingLeft(t.String(), p)
}

// MsgType returns TypeFeaturesRequest.
func (*FeaturesRequest) MsgType() MsgType { return TypeFeaturesRequest }

// AppendTo appends the message to b.
func (m *FeaturesRequest) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return appendEmpty(b, m.MsgType(), xid)
}

// Decode reads the message.
func (m *FeaturesRequest) Decode(b []byte) error { return decodeEmpty(b, m.MsgType()) }

// String describes the message.
func (m *FeaturesRequest) String() string { return m.MsgType().String() }

// MsgType returns TypeGetConfigRequest.
func (*GetConfigRequest) MsgType() MsgType { return TypeGetConfigRequest }

// AppendTo appends the message to b.
func (m *GetConfigRequest) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return appendEmpty(b, m.MsgType(), xid)
}

// Decode reads the message.
func (m *GetConfigRequest) Decode(b []byte) error { return decodeEmpty(b, m.MsgType()) }

// String describes the message.
func (m *GetConfigRequest) String() string { return m.MsgType().String() }

// MsgType returns TypeBarrierRequest.
func (*BarrierRequest) MsgType() MsgType { return TypeBarrierRequest }

// AppendTo appends the message to b.
func (m *BarrierRequest) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return appendEmpty(b, m.MsgType(), xid)
}

// Decode reads the message.
func (m *BarrierRequest) Decode(b []byte) error { return decodeEmpty(b, m.MsgType()) }

// String describes the message.
func (m *BarrierRequest) String() string { return m.MsgType().String() }

// MsgType returns TypeBarrierReply.
func (*BarrierReply) MsgType() MsgType { return TypeBarrierReply }

// AppendTo appends the message to b.
func (m *BarrierReply) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return appendEmpty(b, m.MsgType(), xid)
}

// Decode reads the message.
func (m *BarrierReply) Decode(b []byte) error { return decodeEmpty(b, m.MsgType()) }

// String describes the message.
func (m *BarrierReply) String() string { return m.MsgType().String() }

// MsgType returns TypeGetAsyncRequest.
func (*GetAsyncRequest) MsgType() MsgType { return TypeGetAsyncRequest }

// AppendTo appends the message to b.
func (m *GetAsyncRequest) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return appendEmpty(b, m.MsgType(), xid)
}

// Decode reads the message.
func (m *GetAsyncRequest) Decode(b []byte) error { return decodeEmpty(b, m.MsgType()) }

// String describes the message.
func (m *GetAsyncRequest) String() string { return m.MsgType().String() }

// EchoRequest asks for an EchoReply with the same data.
type EchoRequest struct{ Data []byte }

// MsgType returns TypeEchoRequest.
func (*EchoRequest) MsgType() MsgType { return TypeEchoRequest }

// AppendTo appends the message to b.
func (m *EchoRequest) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	return finish(append(begin(b, TypeEchoRequest, xid), m.Data...), start, nil)
}

// Decode reads the message.
func (m *EchoRequest) Decode(b []byte) (err error) {
	m.Data, err = body(b, TypeEchoRequest)
	return err
}

// String describes the message.
func (m *EchoRequest) String() string { return fmt.Sprintf("ECHO_REQUEST data=%d bytes", len(m.Data)) }

// EchoReply answers an EchoRequest.
type EchoReply struct{ Data []byte }

// MsgType returns TypeEchoReply.
func (*EchoReply) MsgType() MsgType { return TypeEchoReply }

// AppendTo appends the message to b.
func (m *EchoReply) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	return finish(append(begin(b, TypeEchoReply, xid), m.Data...), start, nil)
}

// Decode reads the message.
func (m *EchoReply) Decode(b []byte) (err error) {
	m.Data, err = body(b, TypeEchoReply)
	return err
}

// String describes the message.
func (m *EchoReply) String() string { return fmt.Sprintf("ECHO_REPLY data=%d bytes", len(m.Data)) }
