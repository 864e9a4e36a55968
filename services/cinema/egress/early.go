package egress

import (
	"bytes"
	"net/netip"
)

// Bounds of the buffer for a channel whose source is not known yet: a group of pictures.
const (
	maxEarly      = 4096
	maxEarlyBytes = 4 << 20
)

// earlyBuffer holds datagrams that arrive before the controller's answer names their source.
// This happens because the switches have their rules, and the burst is on its way, before the
// answer arrives. The answer then tells which of them belong to the channel.
type earlyBuffer struct {
	open      bool
	port      uint16 // expected source port; zero if it is not known
	datagrams []datagram
	bytes     int
}

type datagram struct {
	from netip.AddrPort
	raw  []byte
}

// add adds a copy of a datagram, and reports whether it may belong to the expected channel.
func (b *earlyBuffer) add(from netip.AddrPort, raw []byte) bool {
	if !b.open || b.port != 0 && from.Port() != b.port || len(b.datagrams) >= maxEarly || b.bytes+len(raw) > maxEarlyBytes {
		return false
	}
	b.datagrams = append(b.datagrams, datagram{from, bytes.Clone(raw)})
	b.bytes += len(raw)
	return true
}
