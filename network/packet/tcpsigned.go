package packet

// Kinds of TCP options that sign segments: TCP-MD5 (RFC 2385) and TCP-AO (RFC 5925).
const (
	optionMD5 = 19
	optionAO  = 29
)

// IsTCPSigned reports whether the options of a segment hold a signature by a key that both ends of
// the connection share. It stops at an option that exceeds the header.
func IsTCPSigned(options []byte) bool {
	for len(options) > 0 {
		switch options[0] {
		case optionEnd:
			return false
		case optionNop:
			options = options[1:]
			continue
		}
		if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
			return false
		}
		if options[0] == optionMD5 || options[0] == optionAO {
			return true
		}
		options = options[options[1]:]
	}
	return false
}
