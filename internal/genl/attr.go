package genl

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// Attributes returns an iterator over the netlink attributes in b: their types, without flags, and
// their values, which share the memory of b. The iterator stops at the first incomplete attribute.
// The last attribute may lack its padding to a multiple of four bytes, on which the netlink
// package's own parser panics.
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

// Next returns the type and the value of the first attribute in b, and the bytes after the
// attribute. It returns false if there is no complete attribute.
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
