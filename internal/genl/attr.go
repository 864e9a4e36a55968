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
		for len(b) >= unix.SizeofRtAttr {
			length := int(binary.NativeEndian.Uint16(b))
			if length < unix.SizeofRtAttr || length > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, b[unix.SizeofRtAttr:length]) {
				return
			}
			b = b[min((length+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(b)):]
		}
	}
}
