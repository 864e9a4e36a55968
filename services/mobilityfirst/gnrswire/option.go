package gnrswire

import "github.com/sluice-net/sluice/services/mobilityfirst/frame"

// OptionKind is the kind of an option.
type OptionKind uint8

// The kinds of options.
const (
	Recursive  OptionKind = 0 // whether the server asks others in turn
	Expiry     OptionKind = 1 // when a write expires
	TimeToLive OptionKind = 2 // how long an answer may be cached
)

// lastOption is set in the kind of the last option.
const lastOption = 0x80

// Option modifies how a message is served. Options of unknown kinds are carried unchanged.
type Option struct {
	Kind  OptionKind // below 128
	Value []byte     // at most 255 bytes
}

const optionHeader = 2 // kind and length

func appendOptions(b []byte, all []Option) []byte {
	for i, o := range all {
		kind := byte(o.Kind)
		if i == len(all)-1 {
			kind |= lastOption
		}
		b = append(append(b, kind, byte(len(o.Value))), o.Value...)
	}
	return b
}

// parseOptions parses options up to the last one.
func parseOptions(b []byte) (all []Option, err error) {
	for {
		if len(b) < optionHeader {
			return nil, frame.ErrShort
		}
		size := optionHeader + int(b[1])
		if size > len(b) {
			return nil, frame.ErrShort
		}
		all = append(all, Option{OptionKind(b[0] &^ lastOption), b[optionHeader:size]})
		if b[0]&lastOption != 0 {
			return all, nil
		}
		b = b[size:]
	}
}
