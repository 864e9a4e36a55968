package packet

import "encoding/binary"

// MPTCP is what the options of a SYN say of Multipath TCP (RFC 8684, section 3).
type MPTCP struct {
	// Capable says that it opens a connection that may have several subflows (MP_CAPABLE), of
	// a version of the protocol.
	Capable bool
	Version uint8
	// Join says that it opens a further subflow of a connection (MP_JOIN), which its receiver
	// knows by Token. AddressID is the sender's number of the address that it comes from,
	// Backup says that it is to be used when no other subflow is left.
	Join      bool
	Token     uint32
	AddressID uint8
	Backup    bool
}

// Kinds of TCP options, and subtypes of that of MPTCP.
const (
	optionEnd   = 0
	optionNop   = 1
	optionMPTCP = 30

	subtypeCapable = 0
	subtypeJoin    = 1
)

// Lengths of options in a SYN without ACK: of MP_CAPABLE of version 0 with the sender's key
// (RFC 6824, section 3.1), and of later ones without; of MP_JOIN.
const (
	lenCapable0 = 12
	lenCapable  = 4
	lenJoin     = 12
)

// MPTCPOf reads the options of a SYN without ACK. Other subtypes belong in no SYN, and are
// passed over, as is an option of a wrong length, and all from one on that does not end. A SYN
// with both subtypes, or with one of them twice, is of no connection: it says nothing.
func MPTCPOf(options []byte) MPTCP {
	var m MPTCP
	for len(options) > 0 {
		switch options[0] {
		case optionEnd:
			return m
		case optionNop:
			options = options[1:]
			continue
		}
		if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
			return m
		}
		if seen := m.Capable || m.Join; options[0] == optionMPTCP && m.take(options[2:options[1]]) && seen {
			return MPTCP{}
		}
		options = options[options[1]:]
	}
	return m
}

// take reads what an option of MPTCP has after kind and length. It is false for one that no
// SYN has.
func (m *MPTCP) take(b []byte) bool {
	if len(b) < 2 {
		return false
	}
	length := len(b) + 2
	switch subtype, low := b[0]>>4, b[0]&0xf; {
	case subtype == subtypeCapable && (low > 0 && length == lenCapable || low == 0 && length == lenCapable0):
		m.Capable, m.Version = true, low
	case subtype == subtypeJoin && length == lenJoin:
		m.Join, m.Backup, m.AddressID, m.Token = true, low&1 != 0, b[1], binary.BigEndian.Uint32(b[2:])
	default:
		return false
	}
	return true
}
