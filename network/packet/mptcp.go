package packet

import "encoding/binary"

// MPTCP holds the Multipath TCP options of a SYN (RFC 8684, section 3).
type MPTCP struct {
	// Capable is true for a SYN that opens a connection which may have several subflows
	// (MP_CAPABLE). Version is the version of the protocol.
	Capable bool
	Version uint8
	// Join is true for a SYN that opens a further subflow of a connection (MP_JOIN). The
	// receiver knows the connection by Token. AddressID is the sender's identifier for its address.
	// Backup is true if the subflow is to be used only when no other is left.
	Join      bool
	Token     uint32
	AddressID uint8
	Backup    bool
}

// Kinds of TCP options, and subtypes of the MPTCP option.
const (
	optionEnd   = 0
	optionNop   = 1
	optionMPTCP = 30

	subtypeCapable = 0
	subtypeJoin    = 1
)

// Lengths of options in a SYN without ACK: of MP_CAPABLE in version 0, which has the sender's
// key (RFC 6824, section 3.1), and in later versions, which do not; and of MP_JOIN.
const (
	lenCapable0 = 12
	lenCapable  = 4
	lenJoin     = 12
)

// MPTCPOf parses the options of a SYN without ACK. It skips other subtypes, which do not belong
// in a SYN, and options of a wrong length, and stops at an option that exceeds the header. A SYN
// with both subtypes, or with one of them twice, is invalid: the result is zero.
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
		if seen := m.Capable || m.Join; options[0] == optionMPTCP && m.parseOption(options[2:options[1]]) && seen {
			return MPTCP{}
		}
		options = options[options[1]:]
	}
	return m
}

// parseOption parses an MPTCP option after kind and length. It returns false for an option that
// does not belong in a SYN.
func (m *MPTCP) parseOption(b []byte) bool {
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
