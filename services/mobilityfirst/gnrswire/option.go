package gnrswire

import "github.com/sluice-net/sluice/services/mobilityfirst/frame"

// OptionKind is what an option is about.
type OptionKind uint8

// The kinds of options.
const (
	Recursive  OptionKind = 0 // the server asks others in turn
	Expiry     OptionKind = 1 // when what is written is over
	TimeToLive OptionKind = 2 // how long an answer may be kept
)

// last marks the last option, in its kind.
const last = 0x80

// Option says how a message is to be served. Kinds that are not known are carried as they are.
type Option struct {
	Kind  OptionKind // below 128
	Value []byte     // of 255 bytes at most
}

const optionHeader = 2 // kind and length

func appendOptions(b []byte, all []Option) []byte {
	for i, o := range all {
		kind := byte(o.Kind)
		if i == len(all)-1 {
			kind |= last
		}
		b = append(append(b, kind, byte(len(o.Value))), o.Value...)
	}
	return b
}

// parseOptions reads options up to the last one.
func parseOptions(b []byte) (all []Option, err error) {
	for {
		if len(b) < optionHeader {
			return nil, frame.ErrShort
		}
		size := optionHeader + int(b[1])
		if size > len(b) {
			return nil, frame.ErrShort
		}
		all = append(all, Option{OptionKind(b[0] &^ last), b[optionHeader:size]})
		if b[0]&last != 0 {
			return all, nil
		}
		b = b[size:]
	}
}
