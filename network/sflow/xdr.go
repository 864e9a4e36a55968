package sflow

import (
	"encoding/binary"
	"math"

	"github.com/sluice-net/sluice/network/stats"
)

// xdrReader reads XDR (RFC 4506). Reading beyond the end returns zeros and sets short.
type xdrReader struct {
	b     []byte
	short bool
}

// bytes reads opaque data with its padding. It returns nil if there are not enough bytes.
func (x *xdrReader) bytes(n uint32) []byte {
	padded := (uint64(n) + 3) &^ 3
	if padded > uint64(len(x.b)) {
		x.b, x.short = nil, true
		return nil
	}
	out := x.b[:n:n]
	x.b = x.b[padded:]
	return out
}

func (x *xdrReader) uint32() uint32 {
	if b := x.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (x *xdrReader) uint64() uint64 {
	if b := x.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// counter32 reads a counter of 32 bits. All ones mean that the counter is not kept, as for
// counters of 64 bits.
func (x *xdrReader) counter32() uint64 {
	if v := x.uint32(); v != math.MaxUint32 {
		return uint64(v)
	}
	return stats.Unsupported
}

// record reads a format, a length, and a body of that length.
func (x *xdrReader) record() (format uint32, body xdrReader) {
	format = x.uint32()
	body.b = x.bytes(x.uint32())
	return format, body
}
