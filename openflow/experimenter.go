package openflow

import "fmt"

// Experimenter is a message that another organization has defined. Its content is not decoded.
type Experimenter struct {
	Experimenter uint32
	ExpType      uint32
	Data         []byte // what follows the type
}

// MsgType returns TypeExperimenter.
func (*Experimenter) MsgType() MsgType { return TypeExperimenter }

func beginExperimenter(b []byte, experimenter, expType, xid uint32) []byte {
	return put32(put32(begin(b, TypeExperimenter, xid), experimenter), expType)
}

// AppendTo appends the message to b.
func (m *Experimenter) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = beginExperimenter(b, m.Experimenter, m.ExpType, xid)
	return finish(append(b, m.Data...), start, nil)
}

// Decode reads the message.
func (m *Experimenter) Decode(b []byte) error {
	p, err := body(b, TypeExperimenter)
	if err != nil {
		return err
	}
	m.Experimenter, m.ExpType, m.Data = be.Uint32(p), be.Uint32(p[4:]), p[8:]
	return nil
}

// String describes the message.
func (m *Experimenter) String() string {
	return fmt.Sprintf("EXPERIMENTER experimenter=%#x type=%d data=%.64x (%d bytes)", m.Experimenter, m.ExpType, m.Data, len(m.Data))
}

// Types of the experimenter messages that this package knows.
const (
	expBundleControl = 2300 // ONF, EXT-230
	expBundleAdd     = 2301 // ONF, EXT-230
	expGroupMod      = 31   // Nicira
)

// newExperimenter returns the Go type for an experimenter message.
func newExperimenter(experimenter, expType uint32) Message {
	switch {
	case experimenter == ExperimenterONF && expType == expBundleControl:
		return new(BundleControl)
	case experimenter == ExperimenterONF && expType == expBundleAdd:
		return new(BundleAdd)
	case experimenter == ExperimenterNicira && expType == expGroupMod:
		return new(ExtGroupMod)
	}
	return new(Experimenter)
}

// experimenterBody checks that b is the experimenter message with the given experimenter and type,
// and that at least size bytes follow the type. It returns the bytes after the type.
func experimenterBody(b []byte, what string, experimenter, expType uint32, size int) ([]byte, error) {
	p, err := body(b, TypeExperimenter)
	if err != nil {
		return nil, err
	}
	if e, t := be.Uint32(p), be.Uint32(p[4:]); e != experimenter || t != expType {
		return nil, &DecodeError{What: what, Offset: headerSize, Err: ErrType, Detail: fmt.Sprintf("experimenter %#x type %d, want %#x type %d", e, t, experimenter, expType)}
	}
	if len(p) < 8+size {
		return nil, tooShort(what, len(b), headerSize+8+size)
	}
	return p[8:], nil
}
