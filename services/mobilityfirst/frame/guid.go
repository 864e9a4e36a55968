package frame

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// GUID is the name of a host, a thing or a piece of content. The name stays the same when its
// holder moves.
type GUID [20]byte

// ParseGUID parses a name as [GUID.String] writes it: 40 hexadecimal digits.
func ParseGUID(s string) (g GUID, err error) {
	if len(s) != 2*len(g) {
		return g, fmt.Errorf("GUID %q: want %d hexadecimal digits", s, 2*len(g))
	}
	if _, err := hex.Decode(g[:], []byte(s)); err != nil {
		return g, fmt.Errorf("GUID %q: want %d hexadecimal digits", s, 2*len(g))
	}
	return g, nil
}

// String returns the name in hexadecimal digits.
func (g GUID) String() string { return hex.EncodeToString(g[:]) }

// MarshalText implements encoding.TextMarshaler.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *GUID) UnmarshalText(text []byte) (err error) {
	*g, err = ParseGUID(string(text))
	return err
}

// Short returns the low 32 bits, which identify a name in control frames. Several names may share
// them.
func (g GUID) Short() uint32 { return binary.BigEndian.Uint32(g[len(g)-4:]) }

// IsZero reports whether the name is zero, which no host has.
func (g GUID) IsZero() bool { return g == GUID{} }
