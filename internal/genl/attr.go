package genl

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// Attributes goes through netlink's attributes in b: types, without flags, and values that share
// b. It ends at the first that is not whole. The last one may come without the bytes that fill it
// up to a multiple of four, on which the netlink package's own parser panics.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for {
			kind, value, rest, ok := Next(b)
			if !ok || !yield(kind, value) {
				return
			}
			b = rest
		}
	}
}

// Next is the first attribute in b, as Attributes has it, and what follows it; false if there is
// none that is whole.
func Next(b []byte) (kind uint16, value, rest []byte, ok bool) {
	if len(b) < unix.SizeofRtAttr {
		return 0, nil, nil, false
	}
	length := int(binary.NativeEndian.Uint16(b))
	if length < unix.SizeofRtAttr || length > len(b) {
		return 0, nil, nil, false
	}
	kind = binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	return kind, b[unix.SizeofRtAttr:length], b[min((length+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(b)):], true
}
