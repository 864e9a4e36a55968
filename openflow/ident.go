package openflow

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// DatapathID names a switch: 16 bits chosen by the implementer, then usually
// the 48 bits of a MAC address.
type DatapathID uint64

// String returns the identifier as 16 hexadecimal digits.
func (d DatapathID) String() string { return fmt.Sprintf("%016x", uint64(d)) }

// ParseDatapathID reads an identifier in either usual form: 16 hexadecimal
// digits ("00000000000000a1", also after "0x") or eight pairs with colons.
func ParseDatapathID(s string) (DatapathID, error) {
	digits := strings.TrimPrefix(s, "0x")
	if strings.Contains(s, ":") {
		if len(s) != 23 || strings.Count(s, ":") != 7 {
			return 0, fmt.Errorf("openflow: datapath id %q: want eight pairs of hexadecimal digits joined by colons", s)
		}
		digits = strings.ReplaceAll(s, ":", "")
	}
	v, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || len(digits) != 16 {
		return 0, fmt.Errorf("openflow: datapath id %q: want 16 hexadecimal digits, as in 00000000000000a1", s)
	}
	return DatapathID(v), nil
}

// MarshalText makes identifiers readable in JSON and YAML, also as map keys.
func (d DatapathID) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText accepts what ParseDatapathID accepts.
func (d *DatapathID) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDatapathID(string(b))
	return err
}

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is the Ethernet address that means every station.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// String returns the address as six lower-case pairs joined by colons.
func (m MAC) String() string {
	var b [17]byte
	for i, v := range m {
		hex.Encode(b[3*i:], []byte{v})
		if i < 5 {
			b[3*i+2] = ':'
		}
	}
	return string(b[:])
}

// ParseMAC reads six pairs of hexadecimal digits joined by colons or by dashes.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) != 17 {
		return m, macError(s)
	}
	for i := range m {
		if i > 0 && (s[3*i-1] != s[2] || s[2] != ':' && s[2] != '-') {
			return MAC{}, macError(s)
		}
		if _, err := hex.Decode(m[i:i+1], []byte(s[3*i:3*i+2])); err != nil {
			return MAC{}, macError(s)
		}
	}
	return m, nil
}

func macError(s string) error {
	return fmt.Errorf("openflow: MAC address %q: want six pairs of hexadecimal digits, as in 02:00:00:00:00:01", s)
}

// IsMulticast reports whether the address means a group of stations, the
// broadcast address included.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// IsZero reports whether all bits are zero.
func (m MAC) IsZero() bool { return m == MAC{} }

// MarshalText makes addresses readable in JSON and YAML, also as map keys.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText accepts what ParseMAC accepts.
func (m *MAC) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMAC(string(b))
	return err
}
