package openflow

import (
	"fmt"
	"strings"
)

// Hello opens a connection and lists the versions that its sender supports.
type Hello struct {
	// Version is the version in the header: the highest version that the sender supports. Zero
	// is sent as 1.3.
	Version uint8
	// Versions has bit n set if the sender supports version n; it is zero if the sender did not
	// list its versions.
	Versions uint32
}

// NewHello returns a Hello that offers OpenFlow 1.3 only.
func NewHello() *Hello { return &Hello{Version: Version, Versions: 1 << Version} }

const helloVersionBitmap = 1

// MsgType returns TypeHello.
func (*Hello) MsgType() MsgType { return TypeHello }

// Speaks reports whether the sender supports the version: by its list or, without one, if the
// version is not above the header's version.
func (m *Hello) Speaks(version uint8) bool {
	if m.Versions != 0 {
		return version < 32 && m.Versions&(1<<version) != 0
	}
	return version <= m.Version
}

// AppendTo appends the message to b.
func (m *Hello) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, TypeHello, xid)
	if m.Version != 0 {
		b[start] = m.Version
	}
	if m.Versions != 0 {
		b = put16(b, helloVersionBitmap)
		b = put16(b, 8)
		b = put32(b, m.Versions)
	}
	return finish(b, start, nil)
}

// Decode reads the message, whatever version its header has. It skips elements other than the
// list of versions, as the specification requires.
func (m *Hello) Decode(b []byte) error {
	p, err := body(b, TypeHello)
	if err != nil {
		return err
	}
	*m = Hello{Version: b[0]}
	if m.Version == 0 {
		return &DecodeError{What: "HELLO", Err: ErrVersion, Detail: "0 is no version"}
	}
	it := iterate(p, &helloShape)
	for it.step() {
		if be.Uint16(it.elem) == helloVersionBitmap && len(it.elem) >= 8 {
			m.Versions = be.Uint32(it.elem[4:])
		}
	}
	return it.err
}

// String describes the message.
func (m *Hello) String() string {
	var names []string
	for v := uint8(0); v < 32; v++ {
		if m.Versions&(1<<v) != 0 {
			names = append(names, versionName(v))
		}
	}
	return fmt.Sprintf("HELLO version=%s bitmap={%s}", versionName(m.Version), strings.Join(names, ","))
}

func versionName(v uint8) string {
	if v >= 1 && v <= 6 {
		return fmt.Sprintf("1.%d", v-1)
	}
	return fmt.Sprintf("%#02x", v)
}
