package openflow

import "fmt"

// Error is the reason why the other side refused a message. It is a Go error: errors.As finds
// it, and errors.Is compares it with an ErrorCode or an ErrorType.
type Error struct {
	Code ErrorCode
	// Experimenter is set when Code is of type ErrorTypeExperimenter.
	Experimenter uint32
	// Data is the start of the refused message, at least 64 bytes of it, or a text for
	// ErrorTypeHelloFailed.
	Data []byte
}

// NewError returns an error that refuses a message. It quotes as much of the message as the
// specification requires.
func NewError(code ErrorCode, refused []byte) *Error {
	return &Error{Code: code, Data: refused[:min(len(refused), 64)]}
}

// MsgType returns TypeError.
func (*Error) MsgType() MsgType { return TypeError }

// AppendTo appends the message to b.
func (m *Error) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, TypeError, xid)
	b = put16(b, uint16(m.Code.Type()))
	b = put16(b, m.Code.Code())
	if m.Code.Type() == ErrorTypeExperimenter {
		b = put32(b, m.Experimenter)
	}
	return finish(append(b, m.Data...), start, nil)
}

// Decode reads the message, whatever version its header has: a peer of another version sends its
// error in that version.
func (m *Error) Decode(b []byte) error {
	p, err := body(b, TypeError)
	if err != nil {
		return err
	}
	*m = Error{Code: ErrorCode(be.Uint32(p)), Data: p[4:]}
	if m.Code.Type() == ErrorTypeExperimenter {
		if len(p) < 8 {
			return tooShort("ERROR", len(b), 16)
		}
		m.Experimenter, m.Data = be.Uint32(p[4:]), p[8:]
	}
	return nil
}

// Error returns the code's name and the refused message.
func (m *Error) Error() string {
	s := "openflow: " + m.name()
	if m.Code.Type() == ErrorTypeHelloFailed {
		return fmt.Sprintf("%s: %q", s, m.Data)
	}
	if h, err := ParseHeader(m.Data); err == nil {
		return fmt.Sprintf("%s: in reply to %v", s, h.Type)
	}
	return s
}

func (m *Error) name() string {
	if m.Experimenter == ExperimenterONF {
		if name, ok := onfErrorNames[m.Code.Code()]; ok {
			return name
		}
	}
	if m.Code.Type() == ErrorTypeExperimenter {
		return fmt.Sprintf("experimenter error %#x/%d", m.Experimenter, m.Code.Code())
	}
	return m.Code.String()
}

// Is makes errors.Is work with codes and types.
func (m *Error) Is(target error) bool {
	switch t := target.(type) {
	case ErrorCode:
		return m.Code == t
	case ErrorType:
		return m.Code.Type() == t
	}
	return false
}

// String describes the message.
func (m *Error) String() string {
	return fmt.Sprintf("ERROR %s data=%.64x (%d bytes)", m.name(), m.Data, len(m.Data))
}
